"""Export a classifier as one self-contained ONNX file, verified against the classifier.

The graph joins the encoder's own with the traced head, calibration, outlier rule and thresholds. It needs no torch.
"""

import json
import os
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import numpy as np

from labelwise import __version__
from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.core.saved_parts import as_onnx
from labelwise.core.scores import Scores
from labelwise.core.tracing import Graph, Traced
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.graph import IR_VERSION, OPSET
from labelwise.encoders.onnx import OnnxEncoder, open_session
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError
from labelwise.support.writable import write_atomically

TOLERANCE = 1e-5  # of probabilities, and of scores relative to the largest where that is above 1
BATCHES = (1, 2, 7)  # that the file is checked with
OUTPUTS = ("scores", "probabilities", "answers", "outlier_score", "unknown", "labels")
INPUT = "images"
SAMPLE = 3  # rows that a formula is traced with


@dataclass(frozen=True)
class Exported:
    """What was written."""

    file: Path  # where
    labels: int  # how many
    difference: float  # the largest one between the file and the classifier, see ``TOLERANCE``
    megabytes: float  # its size


def export(classifier: Classifier, file: str | Path, *, overwrite: bool = False) -> Exported:
    """Write a classifier as an ONNX file and return what was written; it is run and compared before it is put in place.

    The input ``images`` is bytes ``[n, c, h, w]`` (RGB, or grey), or features ``[n, a]`` (float32), for any n. The outputs are
    ``scores`` (log-odds), ``probabilities`` and ``answers`` (of a yes to each label) as ``Scores`` defines them, each ``[n, k]``,
    ``outlier_score [n]``, whether an image is ``unknown [n]``, and which ``labels [n, k]`` it gets, none where it is unknown. What an
    image file becomes before is in the metadata of the file.
    """
    target = Path(file)
    if target.suffix.lower() != ".onnx":
        raise UsageError(f'The export must be an .onnx file; given "{target}".')
    if os.path.exists(target) and not overwrite:
        raise UsageError(f"{target} already exists. Choose another name, or replace it with --overwrite.")
    try:
        onnx = import_module("onnx")
    except ModuleNotFoundError:
        raise UsageError('The export needs onnx: pip install "labelwise[export]".') from None
    model = _model(classifier, onnx)
    for name, value in metadata(classifier).items():
        entry = model.metadata_props.add()
        entry.key, entry.value = name, value
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    difference = _compare(classifier, content)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, content)
    return Exported(target, len(classifier.labels), difference, os.stat(target).st_size / 1e6)


def metadata(classifier: Classifier) -> dict[str, str]:
    """Return what the file says about itself, each entry JSON."""
    calibration, rule = classifier.calibration, classifier.familiarity.rule
    description: dict[str, Any] = {
        "labels": list(classifier.labels.names),
        "shape": list(classifier.shape),
        "fit": classifier.encoder.fit,
        "input": "uint8" if len(classifier.shape) == 3 else "float32",
        "method": classifier.kind,
        "multilabel": calibration.multilabel,
        "temperature": calibration.temperature,
        "prior": None if calibration.prior is None else calibration.prior.tolist(),
        "thresholds": dict(classifier.thresholds),
        "outlier_rule": None if rule is None else asdict(rule),
        "unseen": sorted(classifier.unseen),
        "labelwise": __version__,
    }
    return {name: json.dumps(value, ensure_ascii=False) for name, value in description.items()}


def _model(classifier: Classifier, onnx: Any) -> Any:
    """Return the ONNX model of a classifier, traced from its own computation."""
    graph, helper, types = Graph(), onnx.helper, onnx.TensorProto
    images = Traced(graph, INPUT, _example(classifier.shape, SAMPLE))
    nodes, constants, functions, version, features = [], [], [], IR_VERSION, images
    if not isinstance(classifier.encoder, Precomputed):
        encoder = as_onnx(classifier.encoder)
        inner = _encoder(encoder, onnx)
        _view(encoder, images).name_output(inner.graph.input[0].name)
        nodes, graph.nodes = [*graph.nodes, *inner.graph.node], []
        constants, functions, version = list(inner.graph.initializer), list(inner.functions), inner.ir_version
        features = _features(encoder, graph)
    embeddings: Any = classifier.head.embed(cast(Array, features))
    outputs = outputs_of(Scores(classifier, embeddings))
    for name, output in outputs.items():
        cast(Traced, output).name_output(name)
    kinds = {np.dtype(np.float32): types.FLOAT, np.dtype(np.bool_): types.BOOL}
    graph_of_all = helper.make_graph(
        [*nodes, *graph.nodes],
        "classifier",
        [
            helper.make_tensor_value_info(
                INPUT, types.UINT8 if images.ndim == 4 else types.FLOAT, ["n", *classifier.shape]
            )
        ],
        [
            helper.make_tensor_value_info(name, kinds[output.dtype], ["n", *output.shape[1:]])
            for name, output in outputs.items()
        ],
        [*constants, *graph.constants],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph_of_all, opset_imports=opsets, ir_version=max(version, IR_VERSION), functions=functions
    )


def _encoder(encoder: OnnxEncoder, onnx: Any) -> Any:
    """Return the model of an encoder, its names beginning with ``encoder/``."""
    model = onnx.load_from_string(encoder.content)
    versions = {opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")}
    if versions != {OPSET}:
        try:
            model = import_module("onnx.version_converter").convert_version(model, OPSET)
        except Exception as error:  # it has no error class
            reason = str(error).strip().splitlines()[0]
            raise UnsupportedError(f"{encoder.name} cannot be converted to ONNX version {OPSET}: {reason}") from error
    return import_module("onnx.compose").add_prefix(model, "encoder/")


def _view(encoder: OnnxEncoder, images: Traced) -> Traced:
    """Return what the graph of an encoder takes: images that are cropped and normalised, and then their mirror images."""
    x: Any = images
    if images.ndim == 4:
        x = x[(..., *encoder.window)]
        x = np.concatenate([x, x[..., ::-1]]) if encoder.card.mirror else x
    return cast(Traced, encoder.normalised(x))


def _features(encoder: OnnxEncoder, graph: Graph) -> Traced:
    """Return features ``[n, d]``, those of images and of their mirror images averaged."""
    mirror = encoder.card.mirror
    sample = np.ones((SAMPLE * (1 + mirror), encoder.width), np.float32)
    features = Traced(graph, f"encoder/{encoder.card.output}", sample)
    if not mirror:
        return features
    left_half, right_half = features.halves()
    return cast(Traced, (left_half + right_half) * 0.5)


def _compare(classifier: Classifier, content: bytes) -> float:
    """Return how far the file is off; raise an error where that is too far or the number of images is fixed."""
    session, worst = open_session(content), 0.0
    for count in BATCHES:
        images = _example(classifier.shape, count)
        features = encode(classifier.encoder, classifier.images(images), cache=False, progress=False)
        expected = outputs_of(classifier.scores_of(classifier.head.embed(features.values)))
        outputs = dict(zip(OUTPUTS, session.run(list(OUTPUTS), {INPUT: images}), strict=True))
        for name in ("scores", "probabilities", "answers"):
            size = max(1.0, float(abs(expected[name]).max())) if name == "scores" else 1.0
            worst = max(worst, float(abs(expected[name] - outputs[name]).max()) / size)
    if not worst <= TOLERANCE:
        raise LabelwiseError(
            f"The exported file differs from the classifier by {worst:.1e}, more than {TOLERANCE:.0e}; nothing was written."
        )
    return worst


def outputs_of(scores: Scores) -> dict[str, Array]:
    """Return the outputs of the file for images with these scores."""
    columns = np.arange(len(scores.classifier.labels))
    answers = scores.agreed if scores.classifier.calibration.multilabel else scores.best[:, None] == columns
    labels = answers & ~scores.unknown[:, None]
    outlier_score = scores.outlier_score.astype(np.float32)
    values = (scores.log_odds, scores.probabilities, scores.yes, outlier_score, scores.unknown, labels)
    return dict(zip(OUTPUTS, values, strict=True))


def _example(shape: tuple[int, ...], count: int) -> Array:
    """Return noise ``[count, *shape]``: bytes of images, or float32 rows."""
    rng = np.random.default_rng(count)
    if len(shape) == 3:
        return rng.integers(0, 256, (count, *shape), np.uint8)
    return rng.normal(size=(count, *shape)).astype(np.float32)
