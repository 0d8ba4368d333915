"""A torch image encoder as an ``Encoder``: freshly trained, or on a GPU.

On a CPU, each call has exactly four images on one thread: the results of torch depend on the number of images and threads,
but not on the other images. On a GPU it runs in half precision, recorded and replayed, equal to 1e-2.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from labelwise.encoders.encode import Features, encode
from labelwise.encoders.encoder import Array, Encoder, Precomputed
from labelwise.encoders.encoder import Features as Rows
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.encoders.registry import open_encoder
from labelwise.images.images import Images
from labelwise.support.cache import digest
from labelwise.support.errors import LabelwiseWarning, UnsupportedError
from labelwise.support.processes import all_gather, current_group, sum_over_processes
from labelwise.train.networks.backbone import BATCH_NORMS, Network
from labelwise.train.recording import record

if TYPE_CHECKING:
    from labelwise.train.networks.image_encoder import ImageEncoder

CPU_BATCH, GPU_BATCH = 4, 256
WARM, KINDS = 3, 4  # calls with the same number of images before recording, and most recordings, which take memory


def shared_encoder(image_encoder: "ImageEncoder") -> Encoder:
    """Return the encoder for a model's head.

    A trained network makes its embeddings. A frozen one makes backbone features, by ONNX Runtime if its weights are published.
    Precomputed features pass unchanged.
    """
    if image_encoder.untrained and len(image_encoder.shape) == 1:
        return Precomputed(image_encoder.shape[0])
    name, on_cpu = image_encoder.published, image_encoder.mean.device.type == "cpu"
    if image_encoder.frozen and name is not None and on_cpu:
        return open_encoder(name, image_encoder.shape, image_encoder.view)
    return TorchEncoder(image_encoder)


def encode_images(image_encoder: "ImageEncoder", images: Images) -> Features:
    """Return the features of images in eval mode; processes share the work."""
    training = image_encoder.training
    try:
        return _encode_shared(image_encoder, images)
    finally:
        image_encoder.train(training)


def _encode_shared(image_encoder: "ImageEncoder", images: Images) -> Features:
    encoder, group = shared_encoder(image_encoder), current_group()
    if group.world == 1:
        return encode(encoder, images)
    own = np.arange(group.rank, len(images), group.world)  # the same shares as for pixels
    part = encode(encoder, images.select(own), progress=group.rank == 0)
    table = torch.zeros(len(images), encoder.width, device=image_encoder.mean.device)
    table[torch.from_numpy(own[part.rows])] = torch.from_numpy(part.values).to(table.device)
    rows = np.concatenate(all_gather(own[part.rows]))
    order, place = rows.argsort(), {name: row for row, name in enumerate(images.ids)}
    ids, digests = (
        [skip for part_skips in all_gather(list(mine)) for skip in part_skips] for mine in (part.ids, part.digests)
    )
    skipped = [skip for part_skips in all_gather(part.skipped) for skip in part_skips]
    return Features(
        values=sum_over_processes(table).cpu().numpy()[rows[order]],
        rows=rows[order],
        ids=[ids[i] for i in order],
        digests=[digests[i] for i in order],
        encoder_id=encoder.id,
        skipped=tuple(sorted(skipped, key=lambda skip: place[skip.file])),
    )


class TorchEncoder:
    """An image encoder with its current weights, as an ``Encoder``."""

    exporter: ClassVar[str] = "labelwise.train.export_encoder:export_torch_encoder"  # its ONNX exporter

    def __init__(self, image_encoder: "ImageEncoder") -> None:
        image_encoder.check_weights()
        self.network = image_encoder.eval()
        # one memory format: convolutions round differently in another
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.cacheable = image_encoder.frozen  # trained weights may never be saved
        self.device = image_encoder.mean.device
        self.name = type(image_encoder.backbone).__name__
        self.shape, self.fit = image_encoder.shape, image_encoder.view.fit
        self.window = image_encoder.view.window(*self.shape[1:]) if len(self.shape) == 3 else (slice(None), slice(None))
        self.width = image_encoder.width
        self.batch = CPU_BATCH if self.device.type == "cpu" else GPU_BATCH
        self.exported: tuple[str, OnnxEncoder] | None = None  # with the id of that time
        self._half = _Replayed(image_encoder.backbone) if self.device.type == "cuda" else None

    @cached_property
    def has_maps(self) -> bool:
        """Whether features are pooled from maps."""
        return has_maps(self.network)

    @property
    def id(self) -> str:
        """The digest of its weights and its view."""
        view = self.network.view
        description = (self.name, self.shape, view.size, view.crop, view.mirror, self.network.untrained)
        state = self.network.state_dict().items()
        parts = [
            part for name, tensor in state for part in (name.encode(), tensor.contiguous().cpu().numpy().tobytes())
        ]
        return digest(repr(description).encode(), *parts).hex()

    @property
    def runtime(self) -> str:
        """The library and version that runs it."""
        return f"torch {torch.__version__}{', float16' if self._half else ''}"

    def __call__(self, images: Array) -> Rows:
        """Return the features ``[n, d]`` of images ``[n, *shape]``."""
        return self._run(images, self._features)

    def locate(self, images: Array) -> tuple[Rows, Rows]:
        """Return features ``[n, d]`` and their maps ``[n, d, h, w]``, those of mirror images flipped back."""
        return self(images), self._run(images, self._maps)

    def _run(self, images: Array, network: Network) -> Rows:
        if self.device.type != "cpu":
            return self._piece(images, network)
        pieces = [images[start : start + CPU_BATCH] for start in range(0, len(images), CPU_BATCH)]
        with _ONE_THREAD():
            parts = [
                self._piece(np.resize(piece, (CPU_BATCH, *piece.shape[1:])), network)[: len(piece)] for piece in pieces
            ]
        return np.concatenate(parts) if parts else np.empty((0, self.width), np.float32)

    def _piece(self, images: Array, network: Network) -> Rows:
        with torch.no_grad():
            x = torch.from_numpy(np.ascontiguousarray(images)).to(self.device)
            x = (x.float() / 255).to(memory_format=torch.channels_last) if len(self.shape) == 3 else x
            features: Rows = network(x).float().cpu().numpy()
        return features

    def _features(self, x: Tensor) -> Tensor:
        return self.network.embed(x, self._half)

    def _maps(self, x: Tensor) -> Tensor:
        maps = self.network.maps(x)
        if self.network.mirrors:
            maps = (maps + self.network.maps(x.flip(3)).flip(3)) / 2
        return projected_maps(self.network, maps)


def has_maps(encoder: "ImageEncoder") -> bool:
    """Return whether each feature of an image encoder is pooled from one map."""
    if len(encoder.shape) != 3:
        return False
    image = torch.zeros(1, *encoder.shape, device=encoder.mean.device)
    try:
        with torch.no_grad():
            maps = encoder.maps(image)
            return maps.ndim == 4 and maps.shape[1] == encoder.backbone.width_out
    except UnsupportedError:
        return False


def projected_maps(encoder: "ImageEncoder", maps: Tensor) -> Tensor:
    """Return the final maps ``[n, d, h, w]`` from the backbone's maps."""
    layer = encoder.project
    if encoder.untrained or not isinstance(layer, nn.Linear):
        return maps
    return conv2d(maps, layer.weight[:, :, None, None])


class _OneThread:
    """While any thread is inside, torch uses one thread; the last one to leave restores the setting."""

    def __init__(self) -> None:
        self._lock, self._inside, self._before = Lock(), 0, 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._before = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    torch.set_num_threads(self._before)


_ONE_THREAD: Any = _OneThread()


class _Replayed:
    """A network on a GPU in half precision, recorded per repeated batch size.

    float16 keeps as many digits as convolutions there take of float32 anyway (TF32), and eight times as fine as bfloat16. Where the
    network leaves its range, the network itself answers in float32.
    """

    def __init__(self, backbone: nn.Module) -> None:
        self._plain = backbone
        self._half, self._warned = deepcopy(backbone).half(), False
        for part in self._half.modules():
            if isinstance(part, BATCH_NORMS):
                part.float()  # these statistics may overflow
        self._calls: Counter[int] = Counter()
        self._tapes: dict[int, tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None] = {}
        self._lock = Lock()  # a recording has one input buffer

    def __call__(self, images: Tensor) -> Tensor:
        """Return features ``[n, d]``."""
        with self._lock:
            features = self._features(images.to(torch.float16, memory_format=torch.channels_last)).float()
        if bool(features.isfinite().all()):
            return features
        if not self._warned:
            self._warned = True
            words = "Features of some images leave the range of float16, so they are computed in float32, more slowly."
            warn(words, LabelwiseWarning, stacklevel=2)
        return self._plain(images)  # type: ignore[no-any-return]

    def _features(self, images: Tensor) -> Tensor:
        n = len(images)
        self._calls[n] += 1
        if images.is_cuda and n not in self._tapes and self._calls[n] > WARM and len(self._tapes) < KINDS:
            self._tapes[n] = self._record(images)
        tape = self._tapes.get(n)
        if tape is None:
            return self._half(images)  # type: ignore[no-any-return]
        graph, inputs, features = tape
        inputs.copy_(images)
        graph.replay()
        return features

    def _record(self, images: Tensor) -> tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None:
        """Return a recording with its input and output, or None without enough memory."""
        inputs = images.clone()
        try:
            graph, features = record(lambda: self._half(inputs), images.device)
        except RuntimeError:
            return None
        return graph, inputs, features
