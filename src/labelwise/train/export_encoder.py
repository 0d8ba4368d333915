"""Export a trained image encoder as an ONNX file that needs no torch."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib import import_module
from io import StringIO
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from labelwise.encoders.encoder import Array
from labelwise.encoders.onnx import Card, OnnxEncoder, onnx_id, onnxruntime
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import TorchEncoder, has_maps, projected_maps

TOLERANCE = 1e-4  # tolerance relative to the largest feature
OPSET = 18


class _Graph(nn.Module):
    """An image encoder as a function of cropped bytes (or float32 rows), without mirror averaging."""

    def __init__(self, encoder: ImageEncoder) -> None:
        super().__init__()
        self.encoder, self.with_maps = encoder, has_maps(encoder)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Return features ``[n, d]``, and the maps they are pooled from."""
        encoder = self.encoder
        x = encoder.prepare(images.float() / 255 if len(encoder.shape) == 3 else images)
        maps = encoder.backbone.maps(x) if self.with_maps else None
        features = encoder.backbone(x) if maps is None else encoder.backbone.pool(maps)
        features = features if encoder.untrained else encoder.finish(features)
        return (features,) if maps is None else (features, projected_maps(encoder, maps))


def export_encoder(image_encoder: ImageEncoder) -> OnnxEncoder:
    """Export an image encoder for ONNX Runtime, and compare it with torch to 1e-4 of the largest feature.

    Its ``content`` is the ONNX file and its ``card`` says how images are seen.
    """
    encoder = TorchEncoder(image_encoder)
    graph, view = _Graph(image_encoder).eval(), image_encoder.view
    content = _content(graph, encoder)
    card = Card(
        name=encoder.name, shape=encoder.shape, maps="maps" if graph.with_maps else None, fit=view.fit,
        crop=view.crop, mirror=view.mirror, source="trained by labelwise",
    )  # fmt: skip
    onnx_encoder = OnnxEncoder(card, onnx_id(card, content), partial(bytes, content), encoder.width)
    images = example(encoder.shape, 2)
    expected = encoder(images)
    difference = float(np.abs(onnx_encoder(images) - expected).max())
    if not difference <= TOLERANCE * float(np.abs(expected).max()):
        raise LabelwiseError(f"The exported {encoder.name} differs from torch by {difference:.1e}; nothing is saved.")
    return onnx_encoder


def export_torch_encoder(encoder: TorchEncoder) -> OnnxEncoder:
    """Export a torch encoder for ONNX Runtime; cached until its weights change."""
    if encoder.exported is None or encoder.exported[0] != encoder.id:
        encoder.exported = encoder.id, export_encoder(encoder.network)
    return encoder.exported[1]


def check_packages() -> None:
    """Raise an error unless the packages for ONNX export are installed."""
    onnxruntime()  # first: others may import it, and its reports must be off
    for name in ("onnx", "onnxscript"):
        try:
            import_module(name)
        except ModuleNotFoundError:
            raise UsageError(
                f'An ONNX file of a trained encoder needs {name}: pip install "labelwise[train]".'
            ) from None


def example(shape: tuple[int, ...], count: int, seed: int = 0) -> Array:
    """Return random input ``[count, *shape]``: bytes of images, or float32 rows."""
    rng = np.random.default_rng(seed)
    if len(shape) == 3:
        return rng.integers(0, 256, (count, *shape), np.uint8)
    return rng.normal(size=(count, *shape)).astype(np.float32)


def _content(graph: _Graph, encoder: TorchEncoder) -> bytes:
    """Return the ONNX file of a graph with a variable number of images."""
    images = example(encoder.shape, 3)
    window = images[(..., *encoder.window)] if len(encoder.shape) == 3 else images
    tensor = torch.from_numpy(np.ascontiguousarray(window)).to(encoder.device)
    names = ["features", "maps"] if graph.with_maps else ["features"]
    content: bytes = to_onnx(graph, tensor, names, encoder.name).SerializeToString()
    return content


def to_onnx(module: nn.Module, images: Tensor, outputs: Sequence[str], name: str) -> Any:
    """Convert a module with the input ``images`` to ONNX, for any number of images; ``name`` is for errors."""
    check_packages()
    with _quiet(), torch.no_grad():
        try:
            size = torch.export.Dim("n", min=1, max=65_536)
            program = torch.export.export(module, (images,), dynamic_shapes={"images": {0: size}}, strict=False)
            written = torch.onnx.export(
                program,
                input_names=["images"],
                output_names=list(outputs),
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
            )
        except LabelwiseError:
            raise
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise UnsupportedError(f"{name} cannot be written as an ONNX graph: {reason}") from error
    assert written is not None
    return written.model_proto


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the exporter's progress messages."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()):
            yield
    finally:
        logging.disable(level)
