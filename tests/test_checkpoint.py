"""Checkpoints: what an optimiser kept comes back, in the memory layout of its parameters."""

import torch
from torch import nn

from labelwise.checkpoint import load_optimizer, optimizer_tensors


def stepped(layer: nn.Conv2d) -> torch.optim.SGD:
    """Return an optimiser of a layer after one step."""
    optimizer = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    layer(torch.ones(2, 3, 5, 5)).sum().backward()
    optimizer.step()
    return optimizer


def test_momentum_comes_back_in_the_layout_of_the_weights() -> None:
    """A fused optimiser refuses momentum that is laid out in memory in another way than the weights."""
    layer = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    before = stepped(layer)
    plain = {
        name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in optimizer_tensors(before).items()
    }
    after = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
    load_optimizer(after, plain)
    for parameter in layer.parameters():
        momentum = after.state[parameter]["momentum_buffer"]
        assert momentum.stride() == parameter.stride()
        assert torch.equal(momentum, before.state[parameter]["momentum_buffer"])
