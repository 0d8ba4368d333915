"""Fit method discriminant on the features of a frozen encoder, or on precomputed ones: NumPy and ONNX Runtime, no torch."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from labelwise.core.calibration import MEMORY
from labelwise.core.classifier import Classifier, MethodRecord, Origin, TrainingState, bind
from labelwise.core.known_examples import KnownExamples
from labelwise.encoders.efficientnet import VARIANTS
from labelwise.encoders.encode import Features, encode
from labelwise.encoders.encoder import Encoder, Precomputed
from labelwise.encoders.quantize import quantized
from labelwise.fitting.by_words import with_words
from labelwise.fitting.choice import shape_for
from labelwise.fitting.division import labels_to_train, of_labels, train_on_all, validation
from labelwise.fitting.estimate import calibrate_by_leave_one_out, estimate_on_validation, merit
from labelwise.fitting.prior import PriorWish
from labelwise.fitting.repeats import merge_repeats
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Images, skipped_lines
from labelwise.images.sources.build import readable
from labelwise.methods.discriminant.fit import DiscriminantFit, fit_discriminant, with_second_opinion
from labelwise.methods.discriminant.method import Discriminant
from labelwise.support.processes import current_group
from labelwise.support.rows import draw_rows
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.verify import can_verify, fit_verifier
from labelwise.train.method import Method, Run

GPU = Path("/dev/nvidiactl")  # exists if there is a GPU; torch then computes features faster
MOST_VERIFIED = 2_000  # largest validation set on which the pair threshold is fitted at once


def takes(method: Method, data: Dataset, run: Run) -> TypeGuard[Discriminant]:
    """Return whether a method is solved without torch: discriminant on features, in one process, on the CPU."""
    if not isinstance(method, Discriminant) or method.tune is not None or int(os.environ.get("WORLD_SIZE", "1")) > 1:
        return False
    if data.features or method.encoder.by_onnx:
        return True
    gpu = run.device == "cuda" or (run.device == "auto" and GPU.exists() and find_spec("torch") is not None)
    settings = method.encoder
    as_published = all(value is None for value in (settings.width, settings.code_size, settings.weights))
    return settings.backbone in ("auto", *VARIANTS) and settings.frozen and as_published and not gpu


@dataclass(frozen=True, eq=False)
class FrozenNetwork:
    """A frozen torch encoder: on a GPU, in several processes, or with weights that are not ONNX."""

    encoder: Encoder
    encode: Callable[[Images], Features]
    state: TrainingState


def fit_closed_form(data: Dataset, method: Discriminant, run: Run, network: FrozenNetwork | None = None) -> Classifier:
    """Fit a classifier to all training images and calibrate it by leave-one-out, or on validation images if that is impossible.

    ``network`` makes the features; None: ONNX Runtime makes them, or they are precomputed.
    """
    began, shape = time.monotonic(), shape_for(method, data)
    encoder = _encoder(method, shape) if network is None else network.encoder
    data = train_on_all(readable(data, ("train", "val"), shape).below_home().weighty(), method)
    if method.precision == "int8":
        encoder = quantized(encoder, data.split("train").images)
    data, features = _encode_splits(data, partial(encode, encoder) if network is None else network.encode, run)
    data = replace(data, labels=method.describe(data.labels))
    seen_rows, labels, unseen = labels_to_train(data)
    parts = {}
    for name, split in (("train", data.split("train")), ("val", validation(data))):
        parts[name] = of_labels(split, seen_rows, len(data.labels))
        if name in features:
            features[name] = features[name][np.isin(split.targets, seen_rows)]
    val, every_image = parts["val"], parts["train"].images
    train, known, _ = merge_repeats(parts["train"], features["train"])
    solution, request = solve(known, train, labels, method)
    discriminant = with_words(solution, known, method.encoder.backbone) if method.words else solution
    head = discriminant.head
    every = labels if unseen is None or not head.reads_descriptions else labels.join(unseen)
    embeddings = head.embed(known)
    classifier, memory_rows = bind(head, encoder, every), draw_rows(len(embeddings), MEMORY)
    classifier = replace(
        classifier,
        calibration=replace(classifier.calibration, unseen=np.arange(len(every)) >= len(labels)),
        familiarity=classifier.familiarity.remember(embeddings[memory_rows], train.targets[memory_rows]),
        examples=KnownExamples.of(labels.names, embeddings, train.targets, train.weights),
    )
    summary: dict[str, Any] = {"data": data.name, "images": len(every_image), "skipped": len(data.skipped)}
    summary |= {"copies": len(every_image) - len(train)} if len(train) < len(every_image) else {}
    summary |= {
        "seconds": round(time.monotonic() - began, 1),
        "device": _device(encoder),
        "processes": current_group().world,
        "seed": run.seed,
    }
    scores = classifier.scores_of(head.embed(features["val"])) if len(val) else None
    if scores is not None:
        summary |= {"validation_images": len(val), **merit(scores, val)}
    runtime = {} if isinstance(encoder, Precomputed) else {"encoder_runtime": encoder.runtime}
    state = None if network is None else network.state
    origin = Origin(method=MethodRecord.of(method), summary={"training": summary, **runtime}, training=state)
    classifier = replace(classifier, origin=origin.with_images(every_image).with_images(val.images))
    calibrated = calibrate_by_leave_one_out(classifier, discriminant, train, embeddings, request)
    if calibrated is not classifier or scores is None or len(val) < 2:
        return calibrated
    calibrated = estimate_on_validation(calibrate(scores.of(classifier), val.targets), scores, val)
    verifiable = len(scores) <= MOST_VERIFIED and can_verify(val.targets)
    return fit_verifier(scores.of(calibrated), val.targets) if verifiable else calibrated


def solve(features: Any, train: Split, labels: Labels, method: Discriminant) -> tuple[DiscriminantFit, PriorWish]:
    """Solve the closed form on training features ``[n, d]``; also return the requested prior."""
    weights = np.array(train.weights) if train.weights else None
    discriminant = fit_discriminant(features, train.targets, labels, train.groups, method.label_source, weights)
    request = PriorWish.of(method.prior, method.costs, labels)
    return with_second_opinion(discriminant, request.shares), request


def _encoder(method: Discriminant, shape: tuple[int, ...]) -> Encoder:
    """Return the encoder for images of a shape."""
    return Precomputed(shape[0]) if len(shape) == 1 else method.encoder.open_encoder(method.view, shape)


def _device(encoder: Encoder) -> str:
    """Return the type of device that makes features."""
    device = getattr(encoder, "device", None)  # of an encoder of torch
    return "cpu" if device is None else str(device.type)


def _encode_splits(data: Dataset, encode: Callable[[Images], Features], run: Run) -> tuple[Dataset, dict[str, Any]]:
    """Return the data without unreadable images, which are reported, and the features of the splits used in training."""
    splits: dict[str, Split] = dict(data.splits)
    features: dict[str, Any] = {}
    before = len(data.skipped)
    for name in ("train", "val"):
        if name in splits:
            split_features = encode(splits[name].images)
            splits[name], features[name] = splits[name].select(split_features.rows), split_features.values
            data = replace(data, skipped=(*data.skipped, *split_features.skipped))
    if run.tell is not None:
        for line in skipped_lines(data.skipped[before:]):
            run.tell(f"Skipped {line}")
    return replace(data, splits=splits), features
