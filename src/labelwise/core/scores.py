"""Scores: the matrix of scores of pictures and labels. Every task is a question about it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

from labelwise.core.arrays import joined, top

if TYPE_CHECKING:  # an answer needs no torch, see ``quick``: numbers are numpy's arrays, then
    from torch import Tensor

    from labelwise.core.classifier import Classifier

MOST = (
    2**24
)  # pairs of a picture and a label that are held at a time, where only an answer for each picture is asked for
UNKNOWN, NONE = "unknown", "none"  # answers that are no label


@dataclass(frozen=True, eq=False)
class Scores:
    """The scores of n pictures and k labels, and what follows from them; each thing is computed once, when asked.

    >>> scores = classifier.scores(pictures)
    >>> label, probability = scores.top(2)[0][0]  # the best of the first picture
    >>> label in classifier.labels.names and 0 < probability <= 1
    True
    >>> len(scores.top(2)[0])
    2
    """

    classifier: "Classifier"  # whose labels
    embeddings: "Tensor"  # of the pictures [n, d], floats
    images: "Tensor | None" = None  # as the model takes them [n, ...], where they are at hand: a heat map needs them

    @cached_property
    def raw(self) -> "Tensor":
        """What the model says of each pair ``[n, k]``; larger is better."""
        import torch

        with torch.no_grad():
            return self.classifier.model.score(self.embeddings, self.classifier.label_embeddings)

    @cached_property
    def unfamiliarity(self) -> "Tensor | None":
        """How far each picture is from all that the model knows ``[n]``, where it tells that by itself."""
        import torch

        from labelwise.core.model import SensesFamiliarity

        model, labels = self.classifier.model, self.classifier.label_embeddings
        if not isinstance(model, SensesFamiliarity):
            return None
        with torch.no_grad():
            return joined([model.unfamiliarity(part.embeddings, labels) for part in self.parts()])

    @cached_property
    def log_odds(self) -> "Tensor":
        """Calibrated scores ``[n, k]``; the largest decides."""
        return self.classifier.calibration.log_odds(self.raw)

    @cached_property
    def best(self) -> "Tensor":
        """The position of the label that fits best ``[n]``."""
        return self._each(lambda part: part.log_odds.argmax(1))

    @cached_property
    def probabilities(self) -> "Tensor":
        """How probable each label is, given that exactly one of them is right ``[n, k]``."""
        return self.classifier.calibration.choice(self.log_odds)

    @cached_property
    def yes(self) -> "Tensor":
        """How probable a yes to each label on its own is ``[n, k]``."""
        return self.classifier.calibration.yes(self.log_odds)

    @cached_property
    def stated(self) -> "Tensor":
        """What is told of each label ``[n, k]``: its probability, or that of a yes where several may be true."""
        return self.yes if self.classifier.calibration.multilabel else self.probabilities

    @cached_property
    def confidence(self) -> "Tensor":
        """The largest probability of a yes ``[n]``; low where no label fits."""
        return self._each(lambda part: part.classifier.calibration.confidence(part.log_odds))

    @cached_property
    def strangeness(self) -> "Tensor":
        """How little each picture fits ``[n]``; larger is stranger."""
        return self.classifier.familiarity.strangeness(self)

    @cached_property
    def unknown(self) -> "Tensor":
        """Whether each picture is none of the labels ``[n]``."""
        return self.strangeness > self.classifier.familiarity.limit

    def __repr__(self) -> str:
        return f"<Scores of {len(self)} pictures and {self.classifier.labels!r:.200}>"

    def __len__(self) -> int:
        return len(self.embeddings)

    def __getitem__(self, rows: "Tensor | Sequence[int] | slice") -> Self:
        """Return the same of some pictures; what was computed is kept."""
        from torch import Tensor

        part = type(self)(self.classifier, self.embeddings)
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        vars(part).update({name: _rows(value, rows) for name, value in tensors.items()})
        return part

    def parts(self) -> Iterator[Self]:
        """Yield the same of some pictures at a time, so that no more than ``MOST`` pairs need be held; of few, all at once."""
        step = max(1, MOST // max(1, len(self.classifier.labels)))
        if len(self) <= step:
            yield self
            return
        for start in range(0, len(self), step):
            yield self[start : start + step]

    def _each(self, answer: "Callable[[Self], Tensor]") -> "Tensor":
        """Return an answer for each picture ``[n]``; the matrix is not kept where it is large."""
        return answer(self) if "log_odds" in vars(self) else joined([answer(part) for part in self.parts()])

    def top(self, count: int) -> list[list[tuple[str, float]]]:
        """Return the best labels of each picture and what is told of them, best first."""
        values, columns = top(self.stated, min(max(1, count), self.stated.shape[1]))
        names = self.classifier.labels.names
        return [
            [(names[column], value) for column, value in zip(row, told, strict=True)]
            for row, told in zip(columns.tolist(), values.tolist(), strict=True)
        ]

    def of(self, classifier: "Classifier") -> Self:
        """Return what another classifier with the same model says of the same pictures; nothing is encoded again."""
        other = type(self)(classifier, self.embeddings, self.images)
        same = (
            classifier.model is self.classifier.model
            and classifier.label_embeddings is self.classifier.label_embeddings
        )
        if same:  # what the model says of them is the same
            vars(other).update({name: vars(self)[name] for name in ("raw", "unfamiliarity") if name in vars(self)})
        return other


def _rows(tensor: "Tensor", rows: "Tensor | Sequence[int] | slice") -> "Tensor":
    """Return some rows of a tensor, wherever it lies."""
    from torch import Tensor

    return tensor[rows.to(tensor.device) if isinstance(rows, Tensor) else rows]
