"""Familiarity: when a picture is none of the labels.

Two signs count. A picture may get little confidence: no label's yes is probable. Or it may be unfamiliar: its embedding
points away from those of all training pictures, as with a drawing shown to a model of photographs, where confidence
says nothing. Each sign is measured in standard deviations of known pictures, and the stronger one is the strangeness.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from labelwise.core.arrays import double, larger, logit, unit_rows, values_at
from labelwise.support.settings import brief

if TYPE_CHECKING:  # an answer needs no torch, see ``quick``: numbers are numpy's arrays, then
    import torch
    from torch import Tensor

    from labelwise.core.scores import Scores

MEMORY = 5_000  # training embeddings kept
NEAREST = 3  # which of the nearest of them counts
Sign = Literal["both", "confidence", "familiarity"]


@dataclass(frozen=True, kw_only=True)
class OutlierRule:
    """When an image is none of the labels, fitted on held-out images of known labels."""

    centre: tuple[float, float]  # the mean of both signs over known images
    spread: tuple[float, float]  # their standard deviation
    limit: float  # a strangeness above this means "unknown"


@dataclass(frozen=True, eq=False, kw_only=True)
class Familiarity:
    """What is known of familiar pictures. Never changes."""

    # embeddings of training images, of unit length [m, d]; what is far from all of them is unfamiliar
    memory: "Tensor | None" = None
    rule: OutlierRule | None = None  # when an image is none of the labels; None is not chosen yet
    # how many times the usual squared distance pictures of each label have, by its examples [k]; None is once, of all
    width: "Tensor | None" = None

    __repr__ = brief

    @property
    def limit(self) -> float:
        """The strangeness above which a picture is unknown; infinite where none is chosen yet."""
        return float("inf") if self.rule is None else self.rule.limit

    def strangeness(self, scores: "Scores", sign: Sign = "both") -> "Tensor":
        """Return how little each image fits ``[n]``, larger is stranger, from both signs or from one of them alone."""
        rule = self.rule or OutlierRule(centre=(0.0, 0.0), spread=(1.0, 1.0), limit=float("inf"))
        columns = zip(self._signs(scores), rule.centre, rule.spread, strict=True)
        doubt, distance = ((column - centre) / spread for column, centre, spread in columns)
        if sign == "both" and (self.memory is not None or scores.unfamiliarity is not None):
            return larger(doubt, distance)
        return distance if sign == "familiarity" else doubt

    def fit(self, scores: "Scores", keep: float) -> Self:
        """Return it with the rule under which the share ``keep`` of these held-out known images counts as known."""
        import torch

        signs = torch.stack(self._signs(scores), 1)
        centre, spread = signs.mean(0).tolist(), signs.std(0, correction=0).clamp_min(1e-6).tolist()
        rule = OutlierRule(centre=(centre[0], centre[1]), spread=(spread[0], spread[1]), limit=0.0)
        strangeness = replace(self, rule=rule).strangeness(scores)
        return replace(self, rule=replace(rule, limit=float(torch.quantile(strangeness, keep))))

    def remember(self, embeddings: "Tensor") -> Self:
        """Return it with these embeddings ``[n, d]`` among the familiar ones."""
        from labelwise.core.rows import append_rows

        more = unit_rows(embeddings.float())
        return replace(self, memory=more if self.memory is None else append_rows(self.memory, more))

    def add(self, count: int, width: float = 1.0) -> Self:
        """Return it with one more label than so many, whose pictures spread by this."""
        if self.width is None and width == 1:
            return self
        import torch

        from labelwise.core.rows import append_rows

        known = torch.ones(count) if self.width is None else self.width
        return replace(self, width=append_rows(known, torch.tensor([width])))

    def select(self, rows: list[int]) -> Self:
        """Return it for these labels only, in this order."""
        return self if self.width is None else replace(self, width=self.width[rows])

    def to(self, device: "str | torch.device") -> Self:
        """Return it on another device."""
        memory, width = (part if part is None else part.to(device) for part in (self.memory, self.width))
        return replace(self, memory=memory, width=width)

    def _signs(self, scores: "Scores") -> tuple["Tensor", "Tensor"]:
        """Return lack of confidence, as log-odds, and unfamiliarity, as the model tells it or a cosine distance: ``[n]`` each."""
        doubt = -logit(scores.confidence, 1e-12)
        if scores.unfamiliarity is not None:
            far = double(scores.unfamiliarity)
            return doubt, far if self.width is None else far / values_at(self.width, scores.raw.argmax(1))
        if self.memory is None:
            return doubt, abs(doubt) * 0
        import torch

        most = min(NEAREST, len(self.memory))
        unit = torch.split(unit_rows(scores.embeddings), 1024)
        return doubt, 1 - torch.cat([(part @ self.memory.T).topk(most).values[:, -1] for part in unit]).double()


def memorable(images: "Tensor") -> "Tensor":
    """Return the images to remember ``[m, ...]``: all, or of many a draw."""
    import torch

    if len(images) <= MEMORY:
        return images
    rows = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))[:MEMORY]
    return images[rows.to(images.device)]
