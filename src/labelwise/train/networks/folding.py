"""A frozen network in its fastest forms: batch norms folded into convolutions, and the same as an ONNX graph."""

import operator
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, Final

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from labelwise.encoders.graph import Array, Attribute, Graph
from labelwise.support.errors import UnsupportedError
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.efficientnet import SameConvolution


class _Tracer(fx.Tracer):
    """Keeps convolutions of our own whole, and lets other threads be.

    To trace, torch changes what it is to call any module, in all threads: those that run a network meanwhile get what they would have got.
    """

    def trace(self, root: nn.Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        """Return the graph of a network."""
        self.thread = get_ident()
        return super().trace(root, concrete_args)

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Return what a module gives, as a step of the graph in the thread that traces."""
        return super().call_module(m, forward, args, kwargs) if get_ident() == self.thread else forward(*args, **kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Return what is read off a module, as a step of the graph in the thread that traces."""
        return super().getattr(attr, attr_val, parameter_proxy_cache) if get_ident() == self.thread else attr_val

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Return whether a module is one operation."""
        return isinstance(m, nn.Conv2d) or super().is_leaf_module(m, module_qualified_name)


def folded(backbone: Backbone) -> fx.GraphModule:
    """Return a copy of a network in eval mode with each batch norm that follows a convolution inside of it.

    One whose way depends on the numbers it is given cannot be traced: an error.
    """
    try:
        graph = _Tracer().trace(backbone)
    except Exception as error:  # whatever code of a network raises where it is given no numbers
        raise UnsupportedError(f"{type(backbone).__name__} cannot be written as a graph: {error}") from error
    module = fx.GraphModule(backbone, graph)
    parts = dict(module.named_modules())
    for node in graph.nodes:
        before = node.args[0] if node.op == "call_module" else None
        if not (isinstance(before, fx.Node) and before.op == "call_module" and len(before.users) == 1):
            continue
        norm, convolution = parts[str(node.target)], parts[str(before.target)]
        if isinstance(norm, nn.BatchNorm2d) and isinstance(convolution, nn.Conv2d):
            fused = fuse_conv_bn_eval(convolution, norm)
            module.add_submodule(str(before.target), fused.to(memory_format=torch.channels_last))  # type: ignore[call-overload]
            node.replace_all_uses_with(before)
            graph.erase_node(node)
    module.delete_all_unused_submodules()
    module.recompile()
    return module.eval().requires_grad_(False)


def onnx_file(module: fx.GraphModule, images: Tensor) -> bytes:
    """Return the ONNX file of a folded network for images of this shape ``[n, c, h, w]``; an error where a step is unknown."""
    shapes: dict[str, tuple[int, ...]] = {}

    class Shapes(fx.Interpreter):
        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            if isinstance(result, Tensor):
                shapes[n.name] = tuple(result.shape)
            return result

    width = Shapes(module).run(images).shape[1]
    graph = Graph(tuple(images.shape[1:]), {"features": (width,)})
    parts = dict(module.named_modules())
    for node in module.graph.nodes:
        _write(graph, node, parts, shapes)
    return graph.file()


def _write(graph: Graph, node: fx.Node, parts: Mapping[str, nn.Module], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Add one step of a traced network to a graph."""
    inputs = [_name(each) for each in node.args if isinstance(each, fx.Node)]
    match node.op:
        case "placeholder":
            return
        case "output":
            graph.add("Flatten", inputs, "features", {"axis": 1})
            return
        case "call_module":
            kind, weights, attributes = _layer(parts[str(node.target)], shapes[node.all_input_nodes[0].name])
        case _:
            kind, weights, attributes = _function(node, shapes)
    names = [graph.constant(f"{node.name}.{i}", each) for i, each in enumerate(weights)]
    graph.add(kind, inputs + names, node.name, attributes)


def _name(node: fx.Node) -> str:
    return "images" if node.op == "placeholder" else node.name


Step = tuple[str, list[Array], dict[str, Attribute]]  # a kind of operation, its fixed inputs, its attributes


def _layer(layer: nn.Module, shape: tuple[int, ...]) -> Step:
    """Return what a layer does to maps of a shape."""
    match layer:
        case nn.Conv2d(padding_mode="zeros", padding=tuple()):
            pads = [int(size) for size in layer.padding for _ in (0, 1)]
            (top, bottom), (left, right) = (
                layer.spare(shape) if isinstance(layer, SameConvolution) else (pads[:2], pads[2:])
            )
            weights = [layer.weight] if layer.bias is None else [layer.weight, layer.bias]
            attributes: dict[str, Attribute] = {"strides": layer.stride, "dilations": layer.dilation}
            attributes |= {"group": layer.groups, "pads": (top, left, bottom, right), "kernel_shape": layer.kernel_size}
            return "Conv", [each.detach().numpy() for each in weights], attributes
        case nn.BatchNorm2d(affine=True, running_mean=Tensor(), running_var=Tensor()):
            tensors = (layer.weight, layer.bias, layer.running_mean, layer.running_var)
            return (
                "BatchNormalization",
                [each.detach().numpy() for each in tensors if each is not None],
                {"epsilon": float(layer.eps)},
            )
        case nn.Linear():
            bias = torch.zeros(layer.out_features) if layer.bias is None else layer.bias
            return "Gemm", [layer.weight.detach().numpy(), bias.detach().numpy()], {"transB": 1}
        case nn.MaxPool2d(dilation=1, ceil_mode=False):
            sides = (layer.kernel_size, layer.stride, layer.padding)
            kernel, strides, padding = ((each, each) if isinstance(each, int) else tuple(each) for each in sides)
            return "MaxPool", [], {"kernel_shape": kernel, "strides": strides, "pads": padding * 2}
        case nn.AdaptiveAvgPool2d(output_size=1 | (1, 1)):
            return "GlobalAveragePool", [], {}
        case nn.Identity() | nn.Dropout():
            return "Identity", [], {}
        case nn.ReLU():
            return "Relu", [], {}
        case nn.ReLU6():
            return _RELU6
    raise UnsupportedError(f"No ONNX operation is known here for {layer}.")


def _limit(value: float) -> Array:
    return torch.tensor(float(value)).numpy()


_RELU6: Final[Step] = ("Clip", [_limit(0), _limit(6)], {})
_FUNCTIONS: Final[Mapping[Callable[..., Any] | str, Step]] = {
    F.relu: ("Relu", [], {}),
    F.relu6: _RELU6,
    operator.add: ("Add", [], {}),
    operator.iadd: ("Add", [], {}),
}


def _function(node: fx.Node, shapes: Mapping[str, tuple[int, ...]]) -> Step:
    """Return what a function or a method of tensors does, of which only those are known that our networks use."""
    target, rest, options = node.target, node.args[1:], {k: v for k, v in node.kwargs.items() if k != "inplace"}
    first = node.args[0]
    whole = isinstance(first, fx.Node) and len(shapes[first.name]) == 4
    if target in ("mean", "amax") and rest == ((2, 3),) and not options and whole:
        return ("GlobalAveragePool" if target == "mean" else "GlobalMaxPool"), [], {}
    if target in ("flatten", torch.flatten) and rest == (1,) and not options:
        return "Flatten", [], {"axis": 1}
    pairs = target in (operator.add, operator.iadd)
    if (
        target in _FUNCTIONS
        and not options
        and (all(isinstance(each, fx.Node) for each in rest) if pairs else not rest)
    ):
        return _FUNCTIONS[target]
    raise UnsupportedError(f"No ONNX operation is known here for {target} with {rest} {options}.")
