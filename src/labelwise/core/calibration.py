"""Calibration: how raw scores become log-odds and probabilities, label by label; adding a label adds a row."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self

from labelwise.core.arrays import double, largest, sigmoid, softmax
from labelwise.support.settings import brief

if TYPE_CHECKING:  # an answer needs no torch, see ``quick``: numbers are numpy's arrays, then
    import torch
    from torch import Tensor

Penalty = Literal["offset", "scale"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """What makes raw scores ``[n, k]`` mean something. Never changes.

    ``log_odds = raw * scale + offset`` per label, so that ``sigmoid(log_odds)`` is the probability of a yes, and
    ``softmax(log_odds / temperature)`` that of each label, given that one of them is right.

    >>> import torch
    >>> two = Calibration(scale=torch.tensor([1.0, 2.0]), offset=torch.zeros(2), unseen=torch.tensor([False, False]))
    >>> two.log_odds(torch.tensor([[1.0, 1.0]]))
    tensor([[1., 2.]])
    """

    scale: "Tensor"  # [k]
    offset: "Tensor"  # [k]
    unseen: "Tensor"  # which labels are known from a description alone [k] (bool); there were images of the others
    # how far seen labels are held back against unseen ones (calibrated stacking); part of scale and offset
    seen_penalty: float = 0.0
    penalty: Penalty = "offset"  # how: taken from raw scores, or, for scores below zero, a multiple of 1 + it
    temperature: float = 1.0  # divides log-odds when labels are compared with each other
    # whether raw scores of one image compete (softmax), so that only their differences carry meaning
    exclusive: bool = False
    # whether several labels may be true of one image, or none; each is then answered on its own
    multilabel: bool = False

    __repr__ = brief

    @classmethod
    def none(cls, count: int, *, exclusive: bool, penalty: Penalty, device: "torch.device") -> Self:
        """Return the calibration of so many seen labels that leaves raw scores as they are."""
        import torch

        one, no = torch.ones(count, device=device), torch.zeros(count, dtype=torch.bool)
        return cls(scale=one, offset=one * 0, unseen=no, exclusive=exclusive, penalty=penalty)

    def log_odds(self, raw: "Tensor") -> "Tensor":
        """Return log-odds ``[n, k]`` of raw scores ``[n, k]``."""
        return raw * self.scale + self.offset

    def choice(self, log_odds: "Tensor") -> "Tensor":
        """Return ``[n, k]``: how probable each label is, given that exactly one of them is right."""
        return softmax(log_odds / self.temperature)

    def yes(self, log_odds: "Tensor") -> "Tensor":
        """Return ``[n, k]``: how probable a yes to "is it this label?" is, each label on its own."""
        return self.choice(log_odds) if self.exclusive else sigmoid(log_odds)

    def confidence(self, log_odds: "Tensor") -> "Tensor":
        """Return ``[n]`` the largest probability of a yes, in double precision; low where no label fits."""
        return largest(self.yes(double(log_odds)))

    def select(self, rows: list[int]) -> Self:
        """Return the calibration of these labels only, in this order."""
        return replace(self, scale=self.scale[rows], offset=self.offset[rows], unseen=self.unseen[rows])

    def add(self, *, unseen: bool) -> Self:
        """Return it with one more label, calibrated as the others are on average, apart from what holds seen ones back."""
        import torch

        from labelwise.core.rows import append_rows

        scale, offset = self.neutral()
        more = replace(self, unseen=append_rows(self.unseen, torch.tensor([unseen])))
        factor, shift = more.penalties()
        return replace(
            more,
            scale=append_rows(self.scale, (factor[-1] * scale)[None]),
            offset=append_rows(self.offset, (shift[-1] * scale + offset)[None]),
        )

    def penalties(self) -> tuple["Tensor", "Tensor"]:
        """Return the scale and offset ``[k]`` by which holding back seen labels alone changes raw scores."""
        penalty = self.seen_penalty * (~self.unseen).to(self.scale)
        return (1 + penalty, penalty * 0) if self.penalty == "scale" else (penalty * 0 + 1, -penalty)

    def neutral(self) -> tuple["Tensor", "Tensor"]:
        """Return the scale and offset of a label that is not held back: the mean over the labels."""
        factor, shift = self.penalties()
        scale = self.scale / factor
        return scale.mean(), (self.offset - shift * scale).mean()

    def bare(self) -> Self:
        """Return it without what was fitted: raw scores, though seen labels stay held back."""
        factor, shift = self.penalties()
        return replace(self, scale=factor, offset=shift, temperature=1.0)

    def fitted(self, scale: "float | Tensor", offset: "float | Tensor", temperature: float) -> Self:
        """Return it with another map of scores, which follows what holds seen labels back."""
        factor, shift = self.penalties()
        return replace(self, scale=factor * scale, offset=shift * scale + offset, temperature=temperature)

    def to(self, device: "str | torch.device") -> Self:
        """Return it on another device."""
        return replace(self, scale=self.scale.to(device), offset=self.offset.to(device))
