"""Trained encoders as ONNX files, for tests that save classifiers and ask about something else.

torch.export takes a second of processor time for the smallest network; the older exporter, which traces, takes 0.03. Each encoder is written
once per run. A few golden tests and ``tests/train/test_export_encoder.py`` export as the product does; here, too, each file is
compared with torch.
"""

import warnings
from collections.abc import Sequence
from io import BytesIO
from threading import Lock
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from labelwise.encoders.onnx import OnnxEncoder
from labelwise.support.cache import digest
from labelwise.support.errors import LabelwiseError
from labelwise.train import export_encoder
from labelwise.train.networks.efficientnet import SameConvolution
from labelwise.train.networks.torch_encoder import TorchEncoder
from tests import once

SLOW, WRITE = export_encoder.to_onnx, export_encoder.export_torch_encoder
_LOCK = Lock()


def written(encoder: TorchEncoder) -> OnnxEncoder:
    """Return an encoder of torch as one that ONNX Runtime runs."""
    key = digest(encoder.id.encode(), repr(encoder.network).encode()).hex()
    return once.remember(f"onnx-{key}", lambda: _write(encoder))


def _write(encoder: TorchEncoder) -> OnnxEncoder:
    with _LOCK:
        export_encoder.to_onnx = _traced
        try:
            return WRITE(encoder)
        except (torch.onnx.OnnxExporterError, LabelwiseError):  # a network of others, which cannot be traced
            export_encoder.to_onnx = SLOW
            return WRITE(encoder)
        finally:
            export_encoder.to_onnx = SLOW


def _traced(module: nn.Module, images: Tensor, outputs: Sequence[str], name: str) -> Any:
    """Do what ``to_onnx`` does, by tracing where that is possible."""
    if any(isinstance(part, SameConvolution) for part in module.modules()):  # has padding that cannot be traced
        return SLOW(module, images, outputs, name)
    stream, rows = BytesIO(), {each: {0: "n"} for each in ("images", *outputs)}
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        torch.onnx.export(
            module, (images,), stream, dynamo=False,  # type: ignore[arg-type]
            opset_version=export_encoder.OPSET, input_names=["images"],
            output_names=list(outputs), dynamic_axes=rows,
        )  # fmt: skip
    return onnx.load_from_string(stream.getvalue())
