"""How a network that is not being trained is run.

On a CPU a frozen one by ONNX Runtime where that is installed, else by torch with batch norms folded: both give what the network gives to 1e-4. On a GPU any
is run in half precision, recorded and replayed. What is made for it lives as long as the network stays as it is; to make it takes as long as some
pictures, so the first few go through the network itself.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from warnings import warn

import torch
from torch import Tensor, fx

from labelwise.encoders.runtime import session
from labelwise.support.errors import LabelwiseWarning, UnsupportedError
from labelwise.support.interruption import cancel_on_error
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.folding import folded, onnx_file
from labelwise.train.sharing import on_device

FEW = 20  # pictures that take as long as what saves time on more; see benchmarks/encode.py
SMALL = (
    1_000_000  # weights of a network that is quick as it is: its answers do not depend on how many pictures came before
)
TOLERANCE, OF_HALF = 1e-4, 1e-2  # of features, relative to the largest where that is above 1; and in half precision
CALLS = 8  # times that a GPU runs a network as it is: weights that are validated between epochs never come so far
WARM, KINDS = (
    3,
    4,
)  # times that so many images are taken before that is recorded, and recordings at most, each with its memory
PIECE = {"cpu": 4, "cuda": 256}  # images that a frozen network takes at a time; on a CPU few fit its caches best

Network = Callable[[Tensor], Tensor]


class Runtime:
    """Runs a network that is not being trained; a copy starts anew, for sessions of ONNX Runtime cannot be copied."""

    def __init__(self) -> None:
        self.used = ""  # what ran last, in words; empty before
        self._pictures = 0
        self._calls: tuple[object, int] = (None, 0)  # how often a GPU ran the network, and in which state
        self._made: tuple[object, Network, str] | None = None  # of which state, what runs it, its name
        self._lock = Lock()  # made once, whichever thread asks first

    def __reduce__(self) -> tuple[type["Runtime"], tuple[()]]:
        return Runtime, ()

    def expect(self, pictures: int) -> None:
        """Note that so many pictures are to come."""
        self._pictures += pictures

    def network(self, backbone: Backbone, images: Tensor) -> Network:
        """Return what turns normalised images such as these ``[n, c, h, w]`` into features ``[n, d]``: the network or its like."""
        if not len(images):
            return backbone
        self._pictures += len(images)
        if images.device.type == "cpu":
            plain = sum(weight.numel() for weight in backbone.parameters()) < SMALL
        else:
            plain = not images.is_cuda or torch.are_deterministic_algorithms_enabled()
        if plain or images.dtype != torch.float32 or not (state := self._worth(backbone, images)):
            self.used = f"torch {torch.__version__}"
            return backbone
        with self._lock:
            if self._made is None or self._made[0] != state:
                self._made = (state, *_fastest(backbone, images[:1]))
            _, network, self.used = self._made
        return network

    def _worth(self, backbone: Backbone, images: Tensor) -> object:
        """Return the state of a network whose fastest form is worth the making; None where too few images went through it."""
        if images.device.type == "cpu" and self._pictures <= FEW:
            return None
        state = _state(backbone), tuple(images.shape[1:]), torch.get_num_threads()
        if images.device.type == "cpu":
            return state
        self._calls = (state, self._calls[1] + 1 if self._calls[0] == state else 1)
        return state if self._calls[1] > CALLS else None


def side_by_side(work: Network, parts: Sequence[Tensor], device: torch.device) -> Iterator[Tensor]:
    """Yield what work on a device makes of each part, without gradients: on a CPU as many at once as torch has threads, each by one.

    Threads that share the work of one part wait for each other after every layer: that takes twice the processor time.
    """
    work, before = torch.no_grad()(work), torch.get_num_threads()
    if device.type != "cpu" or min(before, len(parts)) < 2:
        yield from map(work, on_device(parts, device))
        return
    try:
        with cancel_on_error(ThreadPoolExecutor(before, initializer=torch.set_num_threads, initargs=(1,))) as pool:
            yield from pool.map(work, parts)
    finally:
        torch.set_num_threads(before)  # threads that are yet to start take the number that was set last


def _state(backbone: Backbone) -> tuple[tuple[int, int], ...]:
    """Return what changes where a weight does."""
    tensors = (*backbone.parameters(), *backbone.buffers())
    return tuple((each.data_ptr(), 0 if each.is_inference() else each._version) for each in tensors)


def _fastest(backbone: Backbone, image: Tensor) -> tuple[Network, str]:
    """Return the fastest form of a network for images such as this one ``[1, c, h, w]``, and what it is called."""
    with torch.no_grad():
        try:
            module = folded(backbone)
            wanted = backbone(image)
        except UnsupportedError:
            return backbone, f"torch {torch.__version__}"
        forms: list[Callable[[], tuple[Network, str]]] = [lambda: (module, f"torch {torch.__version__}, folded")]
        if image.is_cuda:
            forms = [lambda: (_Replayed(module, backbone, image), f"torch {torch.__version__}, float16")]
        elif find_spec("onnxruntime") is not None:
            forms.insert(0, lambda: _session(module, image))
        for form in forms:
            try:
                network, name = form()
                if _agree(network(image), wanted):
                    return network, name
            except Exception:  # errors of ONNX Runtime have no class of their own; the next form does as well
                continue
    return backbone, f"torch {torch.__version__}{', as float16 does not reach' if image.is_cuda else ''}"


def graph_file(backbone: Backbone, shape: tuple[int, ...]) -> bytes | None:
    """Return the ONNX file of a network for images of a shape ``(c, h, w)``; None where there is none that gives its features."""
    image = torch.rand((1, *shape), generator=torch.Generator().manual_seed(0))
    try:
        with torch.no_grad():
            content = onnx_file(folded(backbone), image)
            features = torch.from_numpy(session(content, 1)(image.numpy()))
            return content if _agree(features, backbone(image)) else None
    except Exception:  # as in ``_fastest``
        return None


def _agree(features: Tensor, wanted: Tensor) -> bool:
    tolerance = OF_HALF if wanted.is_cuda else TOLERANCE
    return float((features - wanted).abs().max()) <= tolerance * max(1.0, float(wanted.abs().max()))


class _Replayed:
    """A network on a GPU in half precision, recorded for each number of images that comes again.

    float16 keeps as many digits as convolutions there take of float32 anyway (TF32), and eight times as fine as bfloat16. A network that leaves its range
    on the first image is refused; on others the network itself answers, which is told.
    """

    def __init__(self, module: fx.GraphModule, backbone: Backbone, image: Tensor) -> None:
        self._plain: Network = backbone
        self._half, self._told = deepcopy(module).half(), False
        self._taken: Counter[int] = Counter()
        self._tapes: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None] = {}
        self._lock = Lock()  # a recording has one place for images
        if not self._halved(image).isfinite().all():
            raise UnsupportedError(f"Features of {type(backbone).__name__} leave the range of float16.")

    def __call__(self, images: Tensor) -> Tensor:
        """Return features ``[n, d]``."""
        features = self._halved(images)
        if bool(features.isfinite().all()):
            return features
        if not self._told:
            self._told = True
            words = "Features of some pictures leave the range of float16, so the network answers them in float32, more slowly."
            warn(words, LabelwiseWarning, stacklevel=2)
        return self._plain(images)

    def _halved(self, images: Tensor) -> Tensor:
        with self._lock:
            return self._features(images.to(torch.float16, memory_format=torch.channels_last)).float()

    def _features(self, images: Tensor) -> Tensor:
        n = len(images)
        self._taken[n] += 1
        if n not in self._tapes and self._taken[n] > WARM and len(self._tapes) < KINDS:
            self._tapes[n] = self._recorded(images)
        tape = self._tapes.get(n)
        if tape is None:
            return self._half(images)  # type: ignore[no-any-return]
        graph, inputs, features = tape
        inputs.copy_(images)
        graph.replay()
        return features

    def _recorded(self, images: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None:
        """Return a recording, where it finds images and where it leaves features; None where there is no memory for it."""
        graph, inputs = torch.cuda.CUDAGraph(), images.clone()
        try:
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                features = self._half(inputs)
        except RuntimeError:
            return None
        return graph, inputs, features


def _session(module: fx.GraphModule, image: Tensor) -> tuple[Network, str]:
    """Return a folded network as ONNX Runtime runs it, with as many threads as torch has, and its name."""
    run = session(onnx_file(module, image), torch.get_num_threads())

    def network(images: Tensor) -> Tensor:
        return torch.from_numpy(run(images.detach().contiguous().numpy()))

    return network, f"onnxruntime {import_module('onnxruntime').__version__}"
