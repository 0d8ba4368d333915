"""Muon (Jordan et al., 2024): a step turns a kernel in all the directions that its gradients name alike.

SGD follows the few directions in which gradients are large, and the others are learnt late. Here the momentum of a convolution's kernel, a matrix of outputs by inputs,
is replaced by the nearest matrix whose singular values are all about the same. torch's own ``Muon`` takes matrices only, and one product for each.
"""

from typing import Any

import torch
from torch import Tensor, nn

# of the odd polynomial that brings singular values near 1; published with the method
QUINTIC = (3.4445, -4.7750, 2.0315)
ITERATIONS = 3  # as published for CIFAR-10
LEAST = 1e-7  # a gradient of zero stays one


class Muon(torch.optim.SGD):
    """Turns each kernel by the share ``lr`` of its length, which it keeps; weights that are no kernels take a step of SGD.

    A kernel followed by batch norm gives the same maps whatever its length, so it needs no weight decay.
    """

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Change the weights by the gradients there are; a closure, which would make others, is not taken."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for parameter in group["params"]:
                if parameter.ndim == 4 and parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for kernels in by_shape.values():
                self._turn(kernels, group)
        super().step(closure)

    def _turn(self, kernels: list[nn.Parameter], group: dict[str, Any]) -> None:
        """Update kernels of one shape; their gradients are overwritten."""
        gradients: list[Tensor] = [kernel.grad for kernel in kernels if kernel.grad is not None]
        momenta = [self.state[update].setdefault("momentum_buffer", torch.zeros_like(update)) for update in kernels]
        for kernel in kernels:
            kernel.grad = None
        for momentum, gradient in zip(momenta, gradients, strict=True):
            momentum.mul_(group["momentum"]).add_(gradient)
        steps = torch.stack(momenta).flatten(2)
        if group["nesterov"]:
            steps = torch.stack(gradients).flatten(2) + group["momentum"] * steps
        turns = orthogonal(steps.flatten(2))
        weights = torch.stack([kernel.flatten(1) for kernel in kernels])
        lengths = weights.norm(dim=(1, 2), keepdim=True)
        updated = weights - group["lr"] * lengths / turns.norm(dim=(1, 2), keepdim=True).clamp_min(LEAST) * turns
        updated *= lengths / updated.norm(dim=(1, 2), keepdim=True).clamp_min(LEAST)
        for kernel, update in zip(kernels, updated, strict=True):
            kernel.copy_(update.view_as(kernel))


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices ``[g, a, b]`` with the same singular vectors, with all singular values near 1, in float32."""
    a, b, c = QUINTIC
    x = matrices.bfloat16() if matrices.is_cuda else matrices.float()
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp_min(LEAST)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    for _ in range(ITERATIONS):
        product = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(product, product, product, beta=b, alpha=c), x, beta=a)
    return (x.mT if tall else x).float()
