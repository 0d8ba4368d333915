"""Export: a classifier as one ONNX file that answers by itself, checked before it counts.

The graph is the encoder's own and what the head, the calibration, the rule for unknown images and the thresholds compute; torch is not
needed.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.core.encoder_files import as_onnx
from labelwise.core.familiarity import NEAREST
from labelwise.core.scores import Scores
from labelwise.core.thresholds import HALF, threshold_row
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Precomputed
from labelwise.encoders.graph import IR_VERSION, OPSET
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.encoders.runtime import open_session
from labelwise.fitting.formulas import Array, Formulas, Term
from labelwise.fitting.head_formulas import Scored, scored, unit
from labelwise.support.errors import LabelwiseError, UnsupportedError, UsageError
from labelwise.support.writable import write_atomically

TOLERANCE = 1e-5  # of probabilities, and of scores relative to the largest where that is above 1
BATCHES = (1, 2, 7)  # that the file is checked with
OUTPUTS = ("scores", "probabilities", "answers", "outlier_score", "unknown", "labels")
INPUT = "images"


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
        raise UsageError(f'The export is written as an .onnx file; given "{target}".')
    if target.exists() and not overwrite:
        raise UsageError(f"{target} is already there. Choose another name, or replace it with --overwrite.")
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
    about: dict[str, Any] = {
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
    return {name: json.dumps(value, ensure_ascii=False) for name, value in about.items()}


def _model(classifier: Classifier, onnx: Any) -> Any:
    """Return the ONNX model of a classifier."""
    sheet, helper, types = Formulas(), onnx.helper, onnx.TensorProto
    images, nodes, constants, functions, version = len(classifier.shape) == 3, [], [], [], IR_VERSION
    features = Term(sheet, INPUT)
    if not isinstance(classifier.encoder, Precomputed):
        encoder = as_onnx(classifier.encoder)
        inner = _encoder(encoder, onnx)
        _prepare(sheet, encoder, inner.graph.input[0].name)
        nodes, sheet.nodes = [*sheet.nodes, *inner.graph.node], []
        constants, functions, version = list(inner.graph.initializer), list(inner.functions), inner.ir_version
        features = _both_ways(Term(sheet, f"encoder/{encoder.card.output}"), mirror=encoder.card.mirror)
    _answer(classifier, scored(classifier.head, features, classifier.label_embeddings))
    k = len(classifier.labels)
    kinds = dict.fromkeys(OUTPUTS, types.FLOAT) | {"unknown": types.BOOL, "labels": types.BOOL}
    graph = helper.make_graph(
        [*nodes, *sheet.nodes],
        "classifier",
        [helper.make_tensor_value_info(INPUT, types.UINT8 if images else types.FLOAT, ["n", *classifier.shape])],
        [
            helper.make_tensor_value_info(name, kind, ["n"] if name in ("outlier_score", "unknown") else ["n", k])
            for name, kind in kinds.items()
        ],
        [*constants, *sheet.constants],
    )
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=max(version, IR_VERSION), functions=functions)


def _encoder(encoder: OnnxEncoder, onnx: Any) -> Any:
    """Return the model of an encoder, its names beginning with ``encoder/``."""
    model = onnx.load_from_string(encoder.content)
    versions = {each.version for each in model.opset_import if each.domain in ("", "ai.onnx")}
    if versions != {OPSET}:
        try:
            model = import_module("onnx.version_converter").convert_version(model, OPSET)
        except Exception as error:  # it has no class of errors of its own
            reason = str(error).strip().splitlines()[0]
            raise UnsupportedError(f"{encoder.name} cannot be brought to version {OPSET} of ONNX: {reason}") from error
    return import_module("onnx.compose").add_prefix(model, "encoder/")


def _prepare(sheet: Formulas, encoder: OnnxEncoder, name: str) -> None:
    """Add what an encoder does with images before its graph: crop, normalise, add mirror images."""
    card, x = encoder.card, Term(sheet, INPUT, np.uint8)
    if len(card.shape) == 3:
        window = [side.indices(size) for side, size in zip(encoder.window, card.shape[1:], strict=True)]
        x = _sliced(x, [start for start, _, _ in window], [stop for _, stop, _ in window], [2, 3])
        x = x.apply("Concat", _sliced(x, [-1], [-(2**31)], [3], -1), axis=0) if card.mirror else x
    if card.mean is not None:
        mean, std = (np.array(each, np.float32)[:, None, None] for each in (card.mean, card.std))
        x = (x.cast(np.float32) / 255.0 - mean) / std
    x.called(name)


def _sliced(x: Term, starts: list[int], stops: list[int], axes: list[int], step: int = 1) -> Term:
    places = (x.sheet.constant(each, np.int64) for each in (starts, stops, axes, [step] * len(axes)))
    (name,) = x.sheet.add("Slice", [x.name, *places])
    return Term(x.sheet, name, x.dtype)


def _both_ways(features: Term, *, mirror: bool) -> Term:
    """Return features ``[n, d]``, those of images and of their mirror images averaged."""
    if not mirror:
        return features
    one, other = features.sheet.add("Split", [features.name], 2, axis=0, num_outputs=2)
    return (Term(features.sheet, one) + Term(features.sheet, other)) * 0.5


def _answer(classifier: Classifier, known: Scored) -> None:
    """Add calibration, the rule for unknown images and thresholds, and name the outputs."""
    calibration = classifier.calibration
    log_odds = known.raw * calibration.scale + calibration.offset
    choice = (log_odds / calibration.temperature).apply("Softmax", axis=1)
    yes = choice if calibration.exclusive else log_odds.apply("Sigmoid")
    outlier = _outlier_score(classifier, known, log_odds)
    unknown = outlier.apply("Greater", classifier.familiarity.limit, dtype=np.bool_)
    if calibration.multilabel:
        limits = threshold_row(classifier.thresholds, classifier.labels, HALF)
        labels = yes.cast(np.float64).apply("GreaterOrEqual", limits, dtype=np.bool_)
    else:
        best = _best(classifier, log_odds, choice.cast(np.float64))
        labels = best.apply("Equal", np.arange(len(classifier.labels)), dtype=np.bool_)
    labels = labels.apply("And", unknown.apply("Not"))
    terms = (log_odds, choice, yes, outlier.cast(np.float32).reshape(-1), unknown.reshape(-1), labels)
    for name, term in zip(OUTPUTS, terms, strict=True):
        term.called(name)


def _best(classifier: Classifier, log_odds: Term, probabilities: Term) -> Term:
    """Return the position of the answer ``[n, 1]``, see ``core.thresholds.choose``."""
    ranked = log_odds
    if classifier.thresholds:
        limits = threshold_row(classifier.thresholds, classifier.labels)
        chosen = ~np.isnan(limits)
        share = probabilities * np.where(chosen, 1 / np.where(chosen, limits, 1), 0)
        others = share if chosen.all() else probabilities * ~chosen - chosen.astype(np.float64)
        reached = share.over_columns("Max").apply("GreaterOrEqual", 1.0, dtype=np.bool_)
        ranked = reached.apply("Where", share, others, dtype=np.float64)
    return ranked.apply("ArgMax", axis=1, keepdims=1, dtype=np.int64)


def _outlier_score(classifier: Classifier, known: Scored, log_odds: Term) -> Term:
    """Return the outlier score ``[n, 1]`` in double precision, see ``Familiarity.outlier_score``."""
    calibration, familiarity = classifier.calibration, classifier.familiarity
    odds = log_odds.cast(np.float64)
    if calibration.exclusive:
        sure = (odds / calibration.temperature).apply("Softmax", axis=1).over_columns("Max")
    else:
        sure = odds.over_columns("Max").apply("Sigmoid")
    sure = sure.clip(1e-12, 1 - 1e-12)
    doubt = -(sure / (-sure + 1.0)).apply("Log")
    distance = _distance(familiarity.memory, familiarity.width, known)
    centre, spread = (
        ((0.0, 0.0), (1.0, 1.0)) if familiarity.rule is None else (familiarity.rule.centre, familiarity.rule.spread)
    )
    doubt = (doubt - centre[0]) / spread[0]
    return doubt if distance is None else doubt.maximum((distance - centre[1]) / spread[1])


def _distance(memory: Array | None, width: Array | None, known: Scored) -> Term | None:
    """Return how unfamiliar images are ``[n, 1]``; None where nothing says so."""
    sheet = known.raw.sheet
    if known.distances is not None:
        far = known.distances.cast(np.float64)
        if width is None:
            return far
        nearest = known.raw.apply("ArgMax", axis=1, keepdims=1, dtype=np.int64)
        (name,) = sheet.add("Gather", [sheet.constant(width, np.float64), nearest.name])
        return far / Term(sheet, name, np.float64)
    if memory is None:
        return None
    most = min(NEAREST, len(memory))
    alike = unit(known.embeddings) @ memory.T
    values, _ = sheet.add("TopK", [alike.name, sheet.constant([most], np.int64)], 2, axis=1)
    return -Term(sheet, values).columns(most - 1, most).cast(np.float64) + 1.0


def _compare(classifier: Classifier, content: bytes) -> float:
    """Return how far the file is off; raise an error where that is too far or the number of images is fixed."""
    session, worst = open_session(content), 0.0
    for count in BATCHES:
        images = _example(classifier.shape, count)
        wanted = outputs_of(classifier, images)
        given = dict(zip(OUTPUTS, session.run(list(OUTPUTS), {INPUT: images}), strict=True))
        for name in ("scores", "probabilities", "answers"):
            size = max(1.0, float(abs(wanted[name]).max())) if name == "scores" else 1.0
            worst = max(worst, float(abs(wanted[name] - given[name]).max()) / size)
    if not worst <= TOLERANCE:
        raise LabelwiseError(
            f"The exported file differs from the classifier by {worst:.1e}, more than {TOLERANCE:.0e}; nothing was written."
        )
    return worst


def outputs_of(classifier: Classifier, images: Array) -> Mapping[str, Array]:
    """Return what the outputs of the file are to be for images as the encoder takes them ``[n, *shape]``."""
    features = encode(classifier.encoder, classifier.images(images), cache=False, progress=False)
    scores: Scores = classifier.scores_of(classifier.head.embed(features.values))
    several = classifier.calibration.multilabel
    best = np.arange(len(classifier.labels)) == scores.best[:, None]
    labels = (scores.agreed if several else best) & ~scores.unknown[:, None]
    values = (scores.log_odds, scores.probabilities, scores.yes, scores.outlier_score, scores.unknown, labels)
    return dict(zip(OUTPUTS, values, strict=True))


def _example(shape: tuple[int, ...], count: int) -> Array:
    """Return noise ``[count, *shape]``: bytes of images, or float32 rows."""
    rng = np.random.default_rng(count)
    if len(shape) == 3:
        return rng.integers(0, 256, (count, *shape), np.uint8)
    return rng.normal(size=(count, *shape)).astype(np.float32)
