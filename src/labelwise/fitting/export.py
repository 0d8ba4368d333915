"""Export: the image encoder and the scores of the present labels as one ONNX file, checked before it counts."""

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.encoders.runtime import open_session
from labelwise.fitting.rebuild import method_of, model_of
from labelwise.images.view import View
from labelwise.support.errors import LabelwiseError, UsageError
from labelwise.support.writable import check_writable, write_file
from labelwise.train.export_encoder import check_packages, example, to_onnx

TOLERANCE = 1e-4
BATCHES = (1, 2, 7)  # that the file is checked with
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
    ``scores``, ``probabilities`` and ``answers`` as ``Classifier`` defines them, each ``[n, k]``. Labels, shape and how images
    are prepared are in the metadata of the file.
    """
    target = Path(file)
    if target.suffix.lower() != ".onnx":
        raise UsageError(f'The export is written as an .onnx file; given "{target}".')
    if target.exists() and not overwrite:
        raise UsageError(f"{target} is already there. Choose another name, or replace it with --overwrite.")
    check_writable(target)
    check_packages()
    onnx = import_module("onnx")
    scoring = Scoring(classifier).eval()
    graph = to_onnx(scoring, torch.from_numpy(example(classifier.shape, 3)), OUTPUTS, classifier.kind)
    for name, value in metadata(classifier).items():
        entry = graph.metadata_props.add()
        entry.key, entry.value = name, value
    onnx.checker.check_model(graph, full_check=True)
    content = graph.SerializeToString()
    difference = _compare(scoring, classifier, content)
    write_file(target, content)
    return Exported(target, len(classifier.labels), difference, target.stat().st_size / 1e6)


def metadata(classifier: Classifier) -> dict[str, str]:
    """Return what the file says about itself, each entry JSON."""
    shape, outlier = classifier.shape, classifier.familiarity.rule
    pictures = len(shape) == 3
    prepared = f"{shape[0]} features of each image, float32, made as those of training were."
    if pictures:
        sides, stretched = f"{shape[2]} x {shape[1]} pixels (antialiased bilinear)", classifier.encoder.fit == "stretch"
        how = (
            f"stretch both sides to {sides}"
            if stretched
            else f"resize so that the image covers {sides}, keep the centre"
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
        "outlier_rule": None if outlier is None else "The rule for unknown images is not part of this file.",
        "labelwise": __version__,
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in about.items()}


def _inside(view: View) -> str:
    """Return in words what the graph does itself to the images it is handed."""
    steps = []
    if view.crop is not None:
        what = f"{view.crop:g} of each side" if view.crop <= 1 else f"{view.crop} x {view.crop} pixels"
        steps.append(f"keeps the middle {what}")
    steps += ["sees the mirror image, too, and averages"] if view.mirror else []
    return f" The graph itself {' and '.join(steps)}." if steps else ""


def _compare(scoring: Scoring, classifier: Classifier, content: bytes) -> float:
    """Return how far scores of the file are off; raise an error where that is too far or the batch size is fixed."""
    session = open_session(content)
    worst = 0.0
    for count in BATCHES:
        images = torch.from_numpy(example(classifier.shape, count, seed=count))
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
