"""Export: the image encoder and the scores of the present labels as one ONNX file, checked before it counts."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.fitting.rebuild import method_of, model_of
from labelwise.images.view import View
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError

TOLERANCE = 1e-4
BATCHES = (1, 2, 7)  # that the file is checked with
OPSET = 18
OUTPUTS = ("scores", "probabilities", "answers")


@dataclass(frozen=True)
class Exported:
    """What was written."""

    file: Path  # where
    labels: int  # how many
    # the largest difference of a score between the file and the classifier, relative to the largest score where
    # that is above 1
    difference: float
    megabytes: float  # its size


class Scoring(nn.Module):
    """A classifier as one function of its input, with the label embeddings and the calibration inside."""

    embeddings: Tensor
    scale: Tensor
    offset: Tensor

    def __init__(self, classifier: Classifier) -> None:
        super().__init__()
        self.model = model_of(classifier)
        self.pictures = len(classifier.shape) == 3
        self.calibration = calibration = classifier.calibration
        self.register_buffer("embeddings", torch.tensor(classifier.label_embeddings))
        self.register_buffer("scale", torch.tensor(calibration.scale))
        self.register_buffer("offset", torch.tensor(calibration.offset))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scores, probabilities and answers, each ``[n, k]``, of bytes ``[n, c, h, w]`` or features ``[n, a]``."""
        values = images.float() / 255 if self.pictures else images
        raw = self.model.score(self.model.encode_images(values).float(), self.embeddings)
        scores = raw * self.scale + self.offset  # as buffers, so that the graph holds them
        choice = (scores / self.calibration.temperature).softmax(1)
        return scores, choice, choice * 1 if self.calibration.exclusive else scores.sigmoid()


def export(classifier: Classifier, file: str | Path, *, overwrite: bool = False) -> Exported:
    """Write a classifier as an ONNX file and return what was written; it is run and compared before it is put in place.

    The input ``images`` is bytes ``[n, c, h, w]`` (RGB, or grey), or features ``[n, a]`` (float32), for any n. The outputs are
    ``scores``, ``probabilities`` and ``answers`` as ``Classifier`` defines them, each ``[n, k]``. Labels, shape and how pictures
    are prepared are in the metadata of the file.
    """
    target = Path(file)
    if target.suffix.lower() != ".onnx":
        raise UsageError(f'The export is written as an .onnx file; given "{target}".')
    if target.exists() and not overwrite:
        raise UsageError(f"{target} is already there. Choose another name, or replace it with --overwrite.")
    onnx = _packages()
    scoring = Scoring(classifier).eval()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        graph = _graph(scoring, classifier)
        for name, value in metadata(classifier).items():
            entry = graph.metadata_props.add()
            entry.key, entry.value = name, value
        onnx.checker.check_model(graph, full_check=True)
        onnx.save(graph, str(part))
        difference = _compare(scoring, classifier, part)
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return Exported(target, len(classifier.labels), difference, target.stat().st_size / 1e6)


def metadata(classifier: Classifier) -> dict[str, str]:
    """Return what the file says about itself, each entry JSON."""
    shape, outlier = classifier.shape, classifier.familiarity.rule
    pictures = len(shape) == 3
    prepared = f"{shape[0]} features of each image, float32, made as those of training were."
    if pictures:
        sides, squashed = f"{shape[2]} x {shape[1]} pixels (antialiased bilinear)", classifier.encoder.fit == "squash"
        how = (
            f"stretch both sides to {sides}"
            if squashed
            else f"resize so that the picture covers {sides}, keep the centre"
        )
        kind = "RGB." if shape[0] == 3 else "grey."
        prepared = f"Turn as EXIF says, lay over white, {how}; bytes 0..255, channels first, {kind}{_inside(method_of(classifier).view)}"
    about: dict[str, Any] = {
        "labels": list(classifier.labels.names),
        "shape": list(shape),
        "input": "uint8" if pictures else "float32",
        "preprocessing": prepared,
        "method": classifier.kind,
        "multilabel": classifier.calibration.multilabel,
        "temperature": classifier.calibration.temperature,
        "described": sorted(classifier.unseen),
        "outlier_rule": None if outlier is None else "The rule for unknown pictures is not part of this file.",
        "labelwise": __version__,
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in about.items()}


def _inside(view: View) -> str:
    """Return in words what the graph does itself to the pictures it is handed."""
    steps = []
    if view.crop is not None:
        what = f"{view.crop:g} of each side" if view.crop <= 1 else f"{view.crop} x {view.crop} pixels"
        steps.append(f"keeps the middle {what}")
    steps += ["sees the mirror image, too, and averages"] if view.mirror else []
    return f" The graph itself {' and '.join(steps)}." if steps else ""


def _packages() -> Any:
    """Return the package onnx, or say what to install."""
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ModuleNotFoundError as error:
        raise UsageError(f'The export needs {error.name}: pip install "labelwise[train]".') from None
    return onnx


def _example(classifier: Classifier, count: int, seed: int = 0) -> Tensor:
    """Return noise of the model's input shape ``[count, ...]``."""
    generator, shape = torch.Generator().manual_seed(seed), classifier.shape
    if len(shape) == 3:
        return torch.randint(0, 256, (count, *shape), generator=generator, dtype=torch.uint8)
    return torch.randn(count, *shape, generator=generator)


def _graph(scoring: Scoring, classifier: Classifier) -> Any:
    """Return the ONNX graph of a classifier, or say why there is none."""
    with _quiet(), torch.no_grad():
        try:
            size = torch.export.Dim("n", min=1, max=65_536)
            program = torch.export.export(
                scoring, (_example(classifier, 3),), dynamic_shapes={"images": {0: size}}, strict=False
            )
            graph = torch.onnx.export(
                program,
                input_names=["images"],
                output_names=list(OUTPUTS),
                dynamo=True,
                opset_version=OPSET,
                verbose=False,
            )
        except LabelwiseError:
            raise
        except Exception as error:
            who = classifier.kind
            raise UnsupportedError(
                f"{who} cannot be written as an ONNX graph: {str(error).strip().splitlines()[0]}"
            ) from error
    assert graph is not None
    return graph.model_proto


def _compare(scoring: Scoring, classifier: Classifier, file: Path) -> float:
    """Return how far scores of the file are off; raise an error where that is too far or the batch size is fixed."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    worst = 0.0
    for count in BATCHES:
        images = _example(classifier, count, seed=count)
        with torch.no_grad():
            wanted = scoring(images)
        outputs = session.run(list(OUTPUTS), {"images": images.numpy()})
        for name, ours, theirs in zip(OUTPUTS, wanted, outputs, strict=True):
            scale = max(1.0, float(ours.abs().max())) if name == "scores" else 1.0
            worst = max(worst, float((ours - torch.from_numpy(theirs)).abs().max()) / scale)
    if not worst <= TOLERANCE:
        raise LabelwiseError(
            f"The exported model differs from the classifier by {worst:.1e}, more than {TOLERANCE:.0e}; nothing was written."
        )
    return worst


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks on its progress from the user."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(StringIO()):
            yield
    finally:
        logging.disable(level)
