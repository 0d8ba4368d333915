"""What each kind of head computes, as terms of an ONNX graph: the same formulas as its ``embed``, ``score`` and ``outlier_score``."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from labelwise.core.arrays import FLAT, LEAST
from labelwise.fitting.formulas import Array, Operand, Term
from labelwise.methods.clarel.head import ClarelHead
from labelwise.methods.discriminant.head import DiscriminantHead
from labelwise.methods.izf.head import ATAN, CLAMP, SLOPE, FlowSteps, IzfHead, IzfSoftmaxHead, Latents
from labelwise.methods.prototype.head import SLOPE as PAIR_SLOPE
from labelwise.methods.prototype.head import PairScore, PrototypeHead
from labelwise.methods.shared.head import LENGTH, Centre, LinearHead, Projection
from labelwise.methods.shared.zero_shot_head import GeneratedHead, ZeroShotHead
from labelwise.methods.zero_label.head import NamedHead
from labelwise.support.errors import UnsupportedError, listing


@dataclass(frozen=True, eq=False)
class Scored:
    """What a head says of images."""

    embeddings: Term  # [n, d]
    raw: Term  # scores [n, k]
    distances: Term | None = None  # [n, 1], where it measures how unfamiliar an image is


def scored(head: Any, features: Term, label_embeddings: Array) -> Scored:
    """Return the terms of a head from those of features ``[n, d]``."""
    formula = FORMULAS.get(head.kind)
    if formula is None and isinstance(head, GeneratedHead) and type(head).latents is GeneratedHead.latents:
        formula = _bilinear  # one of a plug-in that changes nothing of how images are embedded
    if formula is None:
        raise UnsupportedError(
            f"A head of the kind {head.kind} cannot be exported. Kinds that can: {listing(FORMULAS)}."
        )
    return formula(head, features, label_embeddings)


def unit(rows: Term) -> Term:
    """Return rows of unit length."""
    return rows / (rows * rows).over_columns("Sum").apply("Sqrt").maximum(LEAST)


def root(features: Term) -> Term:
    """Return signed roots at unit length."""
    even = features / abs(features).over_columns("Mean").maximum(FLAT)
    return unit(even / ((abs(even) + FLAT).apply("Sqrt") + FLAT**0.5))


def linear(x: Term, weight: Array, bias: Array | None = None) -> Term:
    """Return ``x @ weight.T + bias``."""
    product = x @ weight.T
    return product if bias is None else product + bias


def linear_scores(x: Term, rows: Array) -> Term:
    """Return scores of rows that are weights and then a bias."""
    return linear(x, rows[:, :-1], rows[:, -1])


def _projected(projection: Projection | None, x: Term) -> Term:
    if projection is None:
        return x
    scaled = (x - projection.mean) / projection.std * projection.length
    return scaled if projection.weight is None else linear(scaled, projection.weight, projection.bias)


def _centred(centre: Centre, rows: Term) -> Term:
    if centre.directions is not None:
        return unit((unit(rows) - centre.mean) @ centre.directions @ centre.directions.T)
    if centre.power != 1.0:
        powers = (abs(rows) + 1e-6).apply("Pow", centre.power) - 1e-6**centre.power
        rows = unit(rows.apply("Sign") * powers)
    centred = unit(rows - centre.mean)
    return centred if centre.turn is None else unit(centred @ centre.turn)


def _discriminant(head: DiscriminantHead, features: Term, label_embeddings: Array) -> Scored:
    x, d = (root if head.rooted else unit)(features), head.width
    likelihoods = raw = linear_scores(x, label_embeddings[:, : d + 1])
    if head.kernel is not None:
        likeness = ((x @ head.kernel.centres.T - 1.0) / head.kernel.width).apply("Exp")
        raw = raw + likeness @ label_embeddings[:, d + 1 :].T
    away = (x - head.whitening.centre) @ head.whitening.root
    nearest = likelihoods.over_columns("Max") * (2 / head.whitening.sharpness)
    return Scored(x, raw, (away * away).over_columns("Sum") - nearest)


def _linear(head: LinearHead, features: Term, label_embeddings: Array) -> Scored:
    x = _even(_projected(head.projection, features), head.feature_map)
    return Scored(x, linear_scores(x, label_embeddings))


def _even(x: Term, how: str) -> Term:
    return x if how == "none" else (root if how == "root" else unit)(x) * LENGTH


def _named(head: NamedHead, features: Term, label_embeddings: Array) -> Scored:
    x = _centred(head.centre, _projected(head.projection, features))
    return Scored(x, linear_scores(x, label_embeddings))


def _bilinear(head: ZeroShotHead, features: Term, label_embeddings: Array) -> Scored:
    x = _centred(head.centre_features, _projected(head.projection, features))
    return Scored(x, linear_scores(x, label_embeddings))


def _clarel(head: ClarelHead, features: Term, label_embeddings: Array) -> Scored:
    rows = _projected(head.projection, features)
    rows = rows if head.centre is None else _centred(head.centre, rows) * LENGTH
    x = linear(rows, head.weight, head.bias)
    wide, y = x.cast(np.float64), label_embeddings.astype(np.float64)
    squares = (wide * wide).over_columns("Sum") + (y**2).sum(1) - wide @ (2 * y.T)
    return Scored(x, -squares.maximum(0.0).apply("Sqrt").cast(np.float32))


def _izf(head: IzfHead, features: Term, label_embeddings: Array) -> Scored:
    z, log_det = _latents(head.flow, _centred(head.centre_features, _projected(head.projection, features)))
    size, semantic = len(head.flow.mean), head.semantic
    own, free = z.columns(0, semantic), z.columns(semantic, size)
    squares = (free * free).over_columns("Sum") + (size - semantic) * math.log(2 * math.pi)
    rest = -(squares * 0.5) + log_det
    x = own.beside((rest - head.density_mean) / head.density_std)
    raw = linear_scores(x, label_embeddings)
    common = rest - ((own * own).over_columns("Sum") + semantic * math.log(2 * math.pi)) * 0.5
    return Scored(x, raw, -(raw.over_columns("Max") + common))


def _izf_softmax(head: IzfSoftmaxHead, features: Term, label_embeddings: Array) -> Scored:
    x, _ = _latents(head.flow, _centred(head.centre_features, _projected(head.projection, features)))
    return Scored(x, linear_scores(x, label_embeddings))


def _latents(latents: Latents, features: Term) -> tuple[Term, Operand]:
    """Return latents ``[n, z]`` and log|det| ``[n, 1]``."""
    z, log_det = (features - latents.mean) @ latents.weight, latents.log_det
    return (z, log_det) if latents.flow is None else _flow(latents.flow, z, len(latents.mean), log_det)


def _flow(flow: FlowSteps, v: Term, size: int, log_det: Operand) -> tuple[Term, Operand]:
    state, half = flow.state, size - size // 2
    for step in flow.steps():
        more: Operand = 0.0
        if f"{step}.order" in state:
            v = v.gather(state[f"{step}.order"])
        elif f"{step}.shift" in state:
            scale = state[f"{step}.log_scale"]
            v, more = (v - state[f"{step}.shift"]) * np.exp(scale), float(scale.sum())
        elif f"{step}.factors" in state:
            v = v.gather(state[f"{step}.permutation.order"]) @ flow.upper(step).T
            v, more = v + v @ np.tril(state[f"{step}.factors"], -1).T, float(state[f"{step}.log_diagonal"].sum())
        else:
            first, second = v.columns(0, half), v.columns(half, size)
            by_first, shift = _affine(flow, f"{step}.by_first", first)
            second = shift + second * by_first.apply("Exp")
            by_second, shift = _affine(flow, f"{step}.by_second", second)
            v = (shift + first * by_second.apply("Exp")).beside(second)
            more = by_first.over_columns("Sum") + by_second.over_columns("Sum")
        log_det = more + log_det if isinstance(more, Term) else log_det + more
    return v, log_det


def _affine(flow: FlowSteps, name: str, half: Term) -> tuple[Term, Term]:
    state, slope = flow.state, SLOPE if flow.activation == "leaky_relu" else 0.0
    hidden = linear(half, state[f"{name}.hidden.weight"], state[f"{name}.hidden.bias"]).apply("LeakyRelu", alpha=slope)
    weight = state[f"{name}.out.weight"]
    both = linear(hidden, weight, state[f"{name}.out.bias"])
    middle = len(weight) // 2
    return both.columns(0, middle).apply("Atan") * (CLAMP * ATAN), both.columns(middle, len(weight))


def _prototype(head: PrototypeHead, features: Term, label_embeddings: Array) -> Scored:
    x, d = _even(_projected(head.projection, features), head.feature_map), head.prototypes.shape[1]
    size = head.learned_size(d)
    learned = _learned(head, x, label_embeddings[:, :size], d)
    if label_embeddings.shape[1] == size:
        return Scored(x, learned)
    base = linear_scores(x, label_embeddings[:, size:])
    return Scored(x, base + (learned - base) * head.share)


def _learned(head: PrototypeHead, x: Term, rows: Array, d: int) -> Term:
    dense = x if head.cosine is None else unit(x)
    if head.scorer == "dol":
        return linear_scores(dense, rows)
    e = head.pair_score.size(d)
    alike = _pairs(head.pair_score, rows[:, :e], x) + rows[:, e]
    return alike if head.scorer == "sim" else (alike + linear_scores(dense, rows[:, e + 1 :])) * 0.5


def _pairs(pair: PairScore, first: Array, x: Term) -> Term:
    """Return S ``[n, k]`` of images and what S needs of prototypes ``[k, e]``."""
    hidden: Term | None = None
    if pair.bias is not None:
        assert pair.first_weight is not None
        assert pair.second_weight is not None
        h = len(pair.bias)
        hidden = _every_pair(pair, linear(x, pair.second_weight), first[:, :h])
        if pair.symmetric != "none":
            back = _every_pair(pair, linear(x, pair.first_weight, pair.bias), first[:, h : 2 * h])
            hidden = hidden.maximum(back) if pair.symmetric == "max" else (hidden + back) * 0.5
    if pair.scale is None or pair.offset is None:
        assert hidden is not None
        return hidden
    cosine = (unit(x) @ first[:, pair.hidden :].T) * float(pair.scale) + float(pair.offset)
    return cosine if hidden is None else cosine + hidden


def _every_pair(pair: PairScore, own: Term, first: Array) -> Term:
    """Return what the network makes of sums of hidden numbers: of images ``[n, h]`` and of prototypes ``[k, h]``."""
    k, h = first.shape
    sums = own.reshape(0, 1, h) + first
    hidden = sums.apply("LeakyRelu", alpha=PAIR_SLOPE)
    if pair.middle_weight is not None:
        assert pair.middle_bias is not None
        hidden = linear(hidden, pair.middle_weight, pair.middle_bias).apply("LeakyRelu", alpha=PAIR_SLOPE)
    assert pair.output_weight is not None
    assert pair.output_bias is not None
    return (hidden @ pair.output_weight[:, None]).reshape(0, k) + float(pair.output_bias)


FORMULAS: Mapping[str, Callable[[Any, Term, Array], Scored]] = {
    "discriminant": _discriminant,
    "linear": _linear,
    "named_clusters": _named,
    "bilinear": _bilinear,
    "clarel": _clarel,
    "izf": _izf,
    "izf_softmax": _izf_softmax,
    "prototype": _prototype,
}
