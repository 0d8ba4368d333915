"""The contracts everything else meets in: labels, a model that scores (image, label) pairs, a classifier.

A model scores every (image, label) pair. Fix the labels and what is left is a classifier. Every task is a
question about the resulting matrix of scores ``[n, k]``. Shape letters: n images, k labels, d image code,
e label code, a vector.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from labelwise.errors import UnsupportedError, UsageError, listing, suggest

UNKNOWN, NONE = "unknown", "none"


def unfit_name(name: str) -> str | None:
    """Return in words why a label cannot have this name, or None: saved names are UTF-8 text, and tables show them in a line."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"the name {name!a} is not valid UTF-8"
    return f"the name {name!a} has a line break" if name.splitlines() != [name] else None


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels:
    """Unique label names and what is known about each; every piece but the names is optional.

    Attributes:
        names: k unique, non-empty names.
        vectors: attributes or word vectors ``[k, a]``.
        texts: sentences that describe each label, k tuples.
        order: the rank of each label where labels are ordered (ordinal), k distinct integers.
        shares: how frequent each label is, ``[k]``, summing to one.
        similarity: how alike two labels are, ``[k, k]``, larger is more alike.
    """

    names: tuple[str, ...]
    vectors: Tensor | None = None
    texts: tuple[tuple[str, ...], ...] | None = None
    order: tuple[int, ...] | None = None
    shares: Tensor | None = None
    similarity: Tensor | None = None

    def __post_init__(self) -> None:
        """Check that every piece belongs to the same k labels."""
        names = self.names
        if not names:
            raise UsageError("No label was given; at least one name is needed.")
        blank = [i for i, name in enumerate(names) if not isinstance(name, str) or not name.strip()]
        if blank:
            raise UsageError(f"Label {blank[0]} has no name (given: {names[blank[0]]!r}). Every label needs one.")
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise UsageError(f"Label names must be unique; given more than once: {listing(twice)}.")
        for what, piece in (
            ("vectors", self.vectors),
            ("texts", self.texts),
            ("order", self.order),
            ("shares", self.shares),
            ("similarity", self.similarity),
        ):
            if piece is not None and len(piece) != len(names):
                raise UsageError(f"There are {len(names)} labels but {len(piece)} {what}; give one for each label.")
        if self.vectors is not None and (self.vectors.ndim != 2 or not torch.isfinite(self.vectors).all()):
            raise UsageError(
                f"Label vectors must be finite numbers of shape [labels, size]; given {list(self.vectors.shape)}."
            )
        square = (len(names), len(names))
        if self.similarity is not None and (
            self.similarity.shape != square or not torch.isfinite(self.similarity).all()
        ):
            raise UsageError(
                f"Label similarity must be finite numbers {list(square)}; given {list(self.similarity.shape)}."
            )
        if self.order is not None and len(set(self.order)) != len(names):
            raise UsageError(f"The order of labels must give each a different rank; given {self.order}.")
        if self.shares is not None and (bool((self.shares < 0).any()) or abs(float(self.shares.sum()) - 1) > 1e-4):
            raise UsageError(
                f"Class shares must not be negative and must sum to 1; they sum to {float(self.shares.sum()):.4f}."
            )

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: str) -> int:
        """Return the position of a label, or raise an error that lists the known ones."""
        if name not in self._positions:
            raise UsageError(
                f'No label "{name}".{suggest(name, self.names)} Known labels: {listing(self.names)}. Add it with "teach".'
            )
        return self._positions[name]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    def select(self, names: Sequence[str]) -> "Labels":
        """Return these labels only, in the order given, with all that is known about them."""
        rows = [self.index(name) for name in names]
        return Labels(
            names=tuple(names),
            vectors=None if self.vectors is None else self.vectors[rows],
            texts=None if self.texts is None else tuple(self.texts[i] for i in rows),
            order=None if self.order is None else tuple(self.order[i] for i in rows),
            shares=None if self.shares is None else self.shares[rows] / self.shares[rows].sum(),
            similarity=None if self.similarity is None else self.similarity[rows][:, rows],
        )

    def join(self, other: "Labels") -> "Labels":
        """Return these labels and then the others; pieces that both have are kept, except order, shares, similarity."""
        both = self.vectors is not None and other.vectors is not None
        texts = None if self.texts is None or other.texts is None else self.texts + other.texts
        vectors = torch.cat([self.vectors, other.vectors]) if both else None  # type: ignore[list-item]
        return Labels(names=self.names + other.names, vectors=vectors, texts=texts)

    def add(self, name: str, vector: Tensor | None = None, texts: Sequence[str] = ()) -> "Labels":
        """Return the labels with one more at the end.

        What stays known for every label is kept: a piece that the new label lacks is dropped, and an order or
        shares are dropped because a new label has no place in them.
        """
        if name in self.names:
            raise UsageError(f'There is already a label "{name}". Remove it first, or choose another name.')
        keep_vectors = self.vectors is not None and vector is not None
        return Labels(
            names=(*self.names, name),
            vectors=torch.cat([self.vectors, vector[None]]) if keep_vectors else None,  # type: ignore[list-item, index]
            texts=(*self.texts, tuple(texts)) if self.texts is not None and texts else None,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Spec:
    """All that a method needs to build its model: the shape of one image and the labels to train on.

    ``shape`` is ``(channels, height, width)``, or ``(size,)`` for precomputed features.
    """

    shape: tuple[int, ...]
    labels: Labels


class LabelModel(nn.Module, ABC):
    """Scores (image, label) pairs. Larger is better, always; a score never depends on the other labels.

    Images reach a model as floats in [0, 1], ``[n, c, h, w]`` (or features ``[n, a]``); a model normalises
    inside, so that pixel bounds mean the same for every method.

    Attributes:
        spec: the image shape and the labels the model was built for.
        reads: which pieces of ``Labels`` beyond the names ``encode_labels`` needs.
        exclusive: True where scores of one image compete (softmax): only their differences carry meaning.
        fitted_together: True where codes depend on all labels at once, so a label cannot be added on its own.
        added_apart: True where one can all the same: it is then fitted against the trained labels, which stay as they are.
        balance: how labels that training had images of are held back against labels known from a description alone:
            ``offset`` takes the gap from their scores; ``scale`` multiplies them by 1 + gap, for scores below zero.
        infinite: which entries of its state may be infinite; all others are finite, or training has gone wrong.
    """

    reads: ClassVar[tuple[str, ...]] = ()
    exclusive: ClassVar[bool] = False
    fitted_together: ClassVar[bool] = False
    added_apart: ClassVar[bool] = False
    balance: ClassVar[Literal["offset", "scale"]] = "offset"
    infinite: ClassVar[tuple[str, ...]] = ()

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        self.spec = spec

    @abstractmethod
    def encode_images(self, images: Tensor) -> Tensor:
        """Return image codes ``[n, d]`` of images in [0, 1]."""

    @abstractmethod
    def encode_labels(self, labels: Labels) -> Tensor:
        """Return label codes ``[k, e]``."""

    @abstractmethod
    def score(self, image_codes: Tensor, label_codes: Tensor) -> Tensor:
        """Return the score of every pair ``[n, k]`` from image codes ``[n, d]`` and label codes ``[k, e]``."""

    def encode_examples(self, images: Tensor, groups: Tensor) -> Tensor:
        """Return label codes ``[g, e]`` from example images; ``groups [n]`` says which label each belongs to."""
        return self.labels_from_codes(self.encode_images(images), groups)

    def labels_from_codes(self, image_codes: Tensor, groups: Tensor) -> Tensor:  # noqa: ARG002
        """Return label codes ``[g, e]`` from the codes of example images ``[n, d]``, each group on its own."""
        raise UnsupportedError(f"{type(self).__name__} cannot learn a label from example images.")

    def feature_maps(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Return the spatial features ``[n, c, h, w]`` that ``pool_maps`` turns into image codes."""
        raise UnsupportedError(f"{type(self).__name__} has no feature maps, so there is no heat map to draw.")

    def pool_maps(self, maps: Tensor) -> Tensor:  # noqa: ARG002
        """Return image codes ``[n, d]`` from feature maps."""
        raise UnsupportedError(f"{type(self).__name__} has no feature maps, so there is no heat map to draw.")

    def generate(self, labels: Labels, count: int, seed: int) -> Tensor:  # noqa: ARG002
        """Return features ``[k, count, f]`` of images that do not exist, made from the labels' descriptions."""
        raise UnsupportedError(f"{type(self).__name__} cannot generate features of a label from its description.")

    def features_of(self, images: Tensor) -> Tensor:  # noqa: ARG002
        """Return features ``[n, f]`` of images in [0, 1], in the space of those that ``generate`` makes."""
        raise UnsupportedError(f"{type(self).__name__} generates no features, so images have none to compare with.")

    def unfamiliarity(self, image_codes: Tensor, label_codes: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return how unfamiliar images are ``[n]``, larger is stranger; None where the model cannot tell by itself."""
        return None

    def second_opinions(self, image_codes: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return other answers ``[m, n]`` (label positions) to calibrate against where no image has a label; None is none.

        They are those of m models that were made without labels, too.
        """
        return None

    def story(self) -> Mapping[str, Any]:
        """Return what the model can tell about how it came about, plain JSON values; it goes into ``Classifier.summary``."""
        return {}

    def similarity(self, queries: Tensor, gallery: Tensor) -> Tensor:
        """Return how alike images are ``[n, m]``, larger is more alike, from codes ``[n, d]`` and ``[m, d]``: their cosine."""
        return normalize(queries.float(), dim=1) @ normalize(gallery.float(), dim=1).T

    def matched(self, queries: Tensor, others: Tensor) -> Tensor:
        """Return ``similarity`` of each row of codes ``[n, d]`` and the same row of others ``[n, d]`` alone: ``[n]``."""
        return (normalize(queries.float(), dim=1) * normalize(others.float(), dim=1)).sum(1)

    @property
    def whitens(self) -> bool:
        """Whether the model knows how codes vary inside a label, which ``whitened`` needs."""
        return False

    def whitened(self, codes: Tensor) -> Tensor:  # noqa: ARG002
        """Return codes ``[n, d]`` in which images of one label differ alike in every direction; they are compared by their cosine."""
        raise UnsupportedError(
            f"{type(self).__name__} does not know how codes vary inside a label, so it cannot compare whitened codes. "
            "Compare by cosine."
        )

    def prepare(self, images: Tensor) -> Tensor:
        """Return what ``encode_images`` takes in place of these images; a model may keep here what it computes once."""
        return images

    def bind(self, labels: Labels) -> "Classifier":
        """Return the classifier of these labels, not yet calibrated."""
        for piece in self.reads:
            if getattr(labels, piece) is None:
                raise UsageError(f'{type(self).__name__} reads the "{piece}" of labels, and these labels have none.')
        self.eval()
        with torch.no_grad():
            codes = self.encode_labels(labels).float()
        ones = torch.ones(len(labels), device=codes.device)
        return Classifier(model=self, labels=labels, codes=codes, scale=ones, offset=ones * 0)

    @property
    def device(self) -> torch.device:
        """Where the model lives."""
        return next((t.device for t in (*self.parameters(), *self.buffers())), torch.device("cpu"))


@dataclass(frozen=True, kw_only=True)
class OutlierRule:
    """When an image is none of the labels, fitted on held-out images of known labels.

    Two signs are looked at: how little confidence the best label gets, and how unfamiliar the image's code is. Each is
    put on the scale of known images, and the stronger one is the outlier score. See ``tasks.outliers``.

    Attributes:
        centre: the mean of both signs over known images.
        spread: their standard deviation.
        limit: an outlier score above this means "unknown".
    """

    centre: tuple[float, float]
    spread: tuple[float, float]
    limit: float


@dataclass(frozen=True, kw_only=True)
class VerificationRule:
    """When two images are of the same label, fitted on pairs of held-out images. See ``tasks.verify``.

    Attributes:
        by: which score of a pair.
        threshold: a score at least as large means "same".
        rule: how it was chosen: where both kinds of error are equally frequent, or the share of different pairs accepted.
        eer: the equal error rate on those pairs.
        scale: with ``offset``: ``sigmoid(score * scale + offset)`` is the probability of "same".
        offset: for same and different pairs that are equally frequent.
    """

    by: Literal["similarity", "cosine", "sum", "whitened"]
    threshold: float
    rule: Literal["eer"] | float
    eer: float
    scale: float
    offset: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Classifier:
    """A model bound to labels, and the calibration that makes its scores mean something. Never changes.

    ``scores = score * scale + offset`` per label, so that ``sigmoid(scores)`` is the probability of a yes.
    ``softmax(scores / temperature)`` is the probability of each label, given that one of them is right.

    Attributes:
        codes: label codes ``[k, e]``; adding a label is adding a row.
        scale: ``[k]``.
        offset: ``[k]``.
        temperature: divides scores when labels are compared with each other.
        multilabel: whether several labels may be true of one image, or none; each is then answered on its own.
        described: the labels known from a description alone; training or ``teach`` had images of the others.
        gap: how far the others are held back, see ``LabelModel.balance``; part of ``scale`` and ``offset``.
        memory: codes of training images, of unit length ``[m, d]``; what is far from all of them is unfamiliar.
        outlier: when an image is none of the labels; None is not chosen yet.
        verification: when two images are of the same label; None is not chosen yet.
        seen: fingerprints of the images it was trained and calibrated on, so that evaluation can tell a leak.
        method: the settings whose ``build(model.spec)`` makes this model anew, so that it can be saved.
        summary: how it came about (training, calibration figures), plain JSON values.
    """

    model: LabelModel
    labels: Labels
    codes: Tensor
    scale: Tensor
    offset: Tensor
    temperature: float = 1.0
    multilabel: bool = False
    described: frozenset[str] = frozenset()
    gap: float = 0.0
    memory: Tensor | None = None
    outlier: OutlierRule | None = None
    verification: VerificationRule | None = None
    seen: Tensor | None = None
    method: object | None = None
    summary: Mapping[str, Any] = field(default_factory=dict)

    def encode(self, images: Tensor, batch: int = 256) -> Tensor:
        """Return image codes ``[n, d]``, computed a batch at a time without gradients."""
        with torch.no_grad():
            parts = [self.model.encode_images(as_float(x.to(self.model.device))) for x in torch.split(images, batch)]
        return torch.cat(parts) if parts else torch.empty(0, 0, device=self.model.device)

    def scores_of_codes(self, image_codes: Tensor) -> Tensor:
        """Return calibrated scores ``[n, k]`` of image codes ``[n, d]``."""
        return self.model.score(image_codes, self.codes) * self.scale + self.offset

    def scores(self, images: Tensor, batch: int = 256) -> Tensor:
        """Return calibrated scores ``[n, k]`` of images, without gradients."""
        check_shape(images, self.model.spec.shape)
        if not len(images):
            return torch.empty(0, len(self.labels), device=self.model.device)
        with torch.no_grad():
            return self.scores_of_codes(self.encode(images, batch).float())

    def probabilities(self, scores: Tensor) -> Tensor:
        """Return ``[n, k]``: how probable each label is, given that exactly one of them is right."""
        return (scores / self.temperature).softmax(-1)

    def answers(self, scores: Tensor) -> Tensor:
        """Return ``[n, k]``: how probable a yes to "is it this label?" is, each label on its own."""
        return self.probabilities(scores) if self.model.exclusive else scores.sigmoid()

    def confidence(self, scores: Tensor) -> Tensor:
        """Return ``[n]``: the largest probability of a yes; low where no label fits."""
        return self.answers(scores.double()).amax(-1)

    def select(self, names: Sequence[str]) -> Self:
        """Return the classifier of these labels only, in this order; their scores stay the same."""
        rows = [self.labels.index(name) for name in names]
        return self._with_rows(self.labels.select(names), self.codes[rows], self.scale[rows], self.offset[rows])

    def remove(self, name: str) -> Self:
        """Return the classifier without one label; the other scores stay the same."""
        self.labels.index(name)
        if len(self.labels) == 1:
            raise UsageError(f'"{name}" is the only label; a classifier needs at least one.')
        return self.select([other for other in self.labels.names if other != name])

    def add(self, labels: Labels, code: Tensor, *, described: bool = False) -> Self:
        """Return the classifier with one more label.

        Args:
            labels: the present labels and the new one at the end, as ``Labels.add`` returns them.
            code: its code ``[e]``. The new label gets the mean scale and offset of the others, apart from the gap.
            described: whether the code comes from a description alone.
        """
        if self.model.fitted_together and not self.model.added_apart:
            raise UnsupportedError(
                f"{type(self.model).__name__} is fitted to all labels together; train it again to add one."
            )
        if labels.names[:-1] != self.labels.names:
            raise UsageError("A label is added at the end; the other labels must stay as they are.")
        scale, offset = self.neutral()
        known = self.described | {labels.names[-1]} if described else self.described
        factor, shift = replace(self, labels=labels, described=known).handicap()
        return replace(self, described=known)._with_rows(
            labels,
            torch.cat([self.codes, code[None].to(self.codes)]),
            torch.cat([self.scale, (factor[-1] * scale)[None]]),
            torch.cat([self.offset, (shift[-1] * scale + offset)[None]]),
        )

    def handicap(self) -> tuple[Tensor, Tensor]:
        """Return the scale and offset ``[k]`` by which the gap alone changes raw scores."""
        gap = self.gap * torch.tensor([name not in self.described for name in self.labels.names]).to(self.codes)
        return (1 + gap, gap * 0) if self.model.balance == "scale" else (gap * 0 + 1, -gap)

    def neutral(self) -> tuple[Tensor, Tensor]:
        """Return the scale and offset of a label that no gap holds back: the mean over the labels."""
        factor, shift = self.handicap()
        scale = self.scale / factor
        return scale.mean(), (self.offset - shift * scale).mean()

    def _with_rows(self, labels: Labels, codes: Tensor, scale: Tensor, offset: Tensor) -> Self:
        known = self.described & set(labels.names)
        return replace(self, labels=labels, codes=codes, scale=scale, offset=offset, described=known)

    def to(self, device: str | torch.device) -> Self:
        """Return the classifier on another device (the model itself is moved)."""
        tensors = {name: getattr(self, name) for name in ("codes", "scale", "offset", "memory")}
        moved = {name: tensor.to(device) for name, tensor in tensors.items() if tensor is not None}
        return replace(self, model=self.model.to(device), **moved)


def as_float(images: Tensor) -> Tensor:
    """Return images as floats; bytes become [0, 1]."""
    return images.float().div_(255) if images.dtype == torch.uint8 else images.float()


def check_shape(images: Tensor, shape: tuple[int, ...]) -> None:
    """Raise an error unless ``images`` is ``[n, *shape]`` and finite."""
    if tuple(images.shape[1:]) != shape:
        advice = f" Read pictures with size={shape[1]}." if len(shape) == 3 and images.ndim == 4 else ""
        raise UsageError(
            f"This model takes images of shape {list(shape)}; given {list(images.shape[1:])} (after the first axis).{advice}"
        )
    if images.is_floating_point() and not torch.isfinite(images).all():
        bad = (~torch.isfinite(images.flatten(1))).any(1).nonzero()[0].item()
        raise UsageError(f"Image {bad} holds a value that is not a finite number (NaN or infinity).")
