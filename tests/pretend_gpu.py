"""A GPU that is none: tensors that say they lie on one, and refuse what a GPU refuses, so that code for GPUs is tried where there is none.

Their numbers lie in the memory of the processor. What mixes them with tensors that are really there is an error, as on a GPU; so is to ask for their array. How fast
anything is, and what only a GPU computes (half precision, recorded steps), is not shown.

    python -m tests.pretend_gpu -m labelwise fit digits --method softmax --device cuda --out model.lw
"""

import runpy
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any
from unittest.mock import MagicMock, patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

GPU = torch.device("cuda", 0)
# What takes tensors of two devices: a copy from one to the other, and indices that lie on the processor.
CROSSING = {"aten.copy_", "aten._to_copy", "aten.index", "aten.index_put", "aten.index_put_", "aten._index_put_impl_"}


class OnGpu(Tensor):
    """A tensor that says it lies on a GPU."""

    inner: Tensor  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor) -> "OnGpu":
        """Return what says so of a tensor of the processor."""
        make: Any = Tensor._make_wrapper_subclass
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        # To what is written in C++ it lies on torch's device without memory, so that what is made beside it there is found, too.
        outer: OnGpu = make(cls, inner.shape, device="meta", requires_grad=False, **layout)
        outer.inner = inner
        return outer

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The GPU."""
        return GPU

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """Whether it lies on a GPU."""
        return True

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """Whether it has no numbers."""
        return False

    def cpu(self, *_: Any) -> Tensor:
        """Return it on the processor."""
        return torch.ops.aten._to_copy(self, device=torch.device("cpu"))  # type: ignore[no-any-return]

    def numpy(self, *, force: bool = False) -> Any:
        """Refuse, as a GPU's tensor does."""
        if force:
            return self.detach().cpu().numpy()
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    def tolist(self) -> Any:
        """Return the numbers."""
        return self.detach().cpu().tolist()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def __repr__(self) -> str:  # type: ignore[override]
        return f"OnGpu({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        """Return what an operation makes of the numbers, on the device where a GPU would leave it."""
        return _run(func, args, kwargs or {})


class _Factories(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Tensors that are made on a GPU say so."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


def _run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    here = [each for each in tensors if not isinstance(each, OnGpu)]
    name = str(func).rpartition(".")[0]
    outside = [each for each in here if each.ndim > 0]
    if len(here) < len(tensors) and outside and not (name in CROSSING and _may_cross(name, args)):
        raise RuntimeError(f"Expected all tensors to be on the same device, but found cuda:0 and cpu, in {name}")
    device = kwargs.get("device")
    on_gpu = len(here) < len(tensors) if device is None else torch.device(device).type in ("cuda", "meta")
    if name == "aten.copy_" or (name.endswith("_") and tensors):
        on_gpu = isinstance(tensors[0], OnGpu)
    inside = {id(each.inner): each for each in tensors if isinstance(each, OnGpu)}

    def unwrapped(each: Any) -> Any:
        if isinstance(each, OnGpu):
            return each.inner
        return torch.device("cpu") if isinstance(each, torch.device) else each

    def wrapped(each: Any) -> Any:
        if not on_gpu or not isinstance(each, Tensor) or isinstance(each, OnGpu):
            return each
        return inside[id(each)] if id(each) in inside else OnGpu(each)

    with torch._C._DisableTorchDispatch():
        made = func(*tree_map(unwrapped, args), **tree_map(unwrapped, kwargs))
    if name == "aten._to_copy" and made is not None and any(made is unwrapped(each) for each in tensors):
        made = made.clone()
    return tree_map(wrapped, made)


def _may_cross(name: str, args: Any) -> bool:
    return name in ("aten.copy_", "aten._to_copy") or isinstance(args[0], OnGpu)


class _Generator(torch._C.Generator):
    place = torch.device("cpu")

    def __new__(cls, device: Any = "cpu") -> Any:
        """Return a generator of the processor that names another device."""
        made: Any = super().__new__(cls, "cpu")  # type: ignore[call-arg]
        made.place = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """Where it draws."""
        return self.place


@contextmanager
def pretend_gpu() -> Iterator[None]:
    """While open, PyTorch seems to have a GPU; steps of training, and iterations of transport, are taken as they stand."""
    from labelwise.methods.zero_label import sinkhorn
    from labelwise.train import step_engine
    from labelwise.train.networks import torch_encoder

    make, take = torch.tensor, torch.as_tensor
    generators = (_Generator(),)

    def made(by: Any) -> Any:
        return lambda data, *args, device=None, **more: _placed(by(data, *args, **more), device)

    names = {
        "is_available": lambda: True, "device_count": lambda: 1, "current_device": lambda: 0, "synchronize": lambda *_: None, "set_device": lambda *_: None,
        "get_device_name": lambda *_: "a GPU that is none", "max_memory_allocated": lambda *_: 0, "reset_peak_memory_stats": lambda *_: None,
        "empty_cache": lambda: None, "get_rng_state": lambda *_: generators[0].get_state(), "set_rng_state": lambda *_: None, "manual_seed_all": lambda *_: None,
        "mem_get_info": lambda *_: (2**40, 2**40), "Stream": lambda *_: MagicMock(), "current_stream": lambda *_: MagicMock(), "stream": lambda *_: nullcontext(), "default_generators": generators, "is_initialized": lambda: True,
    }  # fmt: skip
    with ExitStack() as stack:
        for name, value in names.items():
            stack.enter_context(patch.object(torch.cuda, name, value))
        stack.enter_context(patch.object(torch, "tensor", made(make)))
        stack.enter_context(patch.object(torch, "as_tensor", made(take)))
        stack.enter_context(patch.object(torch, "Generator", _Generator))
        stack.enter_context(patch.object(torch, "autocast", lambda *_, **__: nullcontext()))
        stack.enter_context(patch.object(Tensor, "to", _to(Tensor.to)))
        stack.enter_context(patch.object(Tensor, "cuda", lambda x, *_, **__: x.to(GPU)))
        stack.enter_context(patch.object(Tensor, "pin_memory", lambda self, *_: self))
        stack.enter_context(patch.object(Tensor, "record_stream", lambda *_: None))
        stack.enter_context(patch.object(step_engine.StepEngine, "prepare", lambda _, step, *__: step))
        stack.enter_context(patch.object(sinkhorn, "_run", sinkhorn._rounds))
        stack.enter_context(patch.object(torch_encoder, "_Replayed", lambda backbone: backbone))
        before = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, before)
        stack.enter_context(_Factories())  # type: ignore[no-untyped-call]
        yield


def _to(original: Any) -> Any:
    """Return what brings a tensor to a device, of the GPU that is none, too."""

    def to(tensor: Tensor, *args: Any, **kwargs: Any) -> Any:
        like = next((each for each in args if isinstance(each, Tensor)), None)
        said = [*args, *kwargs.values(), *(() if like is None else (like.device, like.dtype))]
        device = next((torch.device(each) for each in said if isinstance(each, str | torch.device)), None)
        if device is not None and device.type != tensor.device.type:
            tensor = torch.ops.aten._to_copy(tensor, device=GPU if device.type == "cuda" else device)
        kinds = {"dtype": torch.dtype, "memory_format": torch.memory_format}
        more = {name: each for name, kind in kinds.items() for each in said if isinstance(each, kind)}
        same = torch.ops.aten._to_copy if isinstance(tensor, OnGpu) else original  # which names no device
        return same(tensor, **more) if more else tensor

    return to


def _placed(tensor: Tensor, device: Any) -> Tensor:
    return tensor if device is None else tensor.to(device)


if __name__ == "__main__":
    if sys.argv[1] != "-m":
        raise SystemExit(__doc__)
    sys.argv = sys.argv[2:]
    with pretend_gpu():
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
