"""The Square attack: random search with scores alone, so that a model cannot hide behind useless gradients."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from labelwise.support.settings import check_range
from labelwise_papers.attacks.pgd import Points, Problem

# Shares of the queries after which squares halve their area.
HALVINGS = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
TOGETHER = 50  # queries between two looks at which images are left standing


@dataclass(frozen=True, kw_only=True)
class Square:
    """Random search over squares of pixels at the edge of the ball (Andriushchenko et al. 2020).

    It starts from vertical stripes. Each query repaints one square of an image, every channel by plus or minus epsilon, and keeps it
    where the true label loses ground. Squares get smaller as queries are spent. Fooled images are left alone.
    """

    black_box: ClassVar[bool] = True

    queries: int = 1000  # how often each image is scored
    share: float = 0.8  # of the pixels that the first squares cover

    def __post_init__(self) -> None:
        check_range(self, "at least 1", "queries")
        check_range(self, "above 0 and at most 1", "share")

    @property
    def name(self) -> str:
        """The name and the queries."""
        return f"square-{self.queries}"

    def __call__(self, problem: Problem, generator: torch.Generator) -> Points:
        """Return the best point of the search."""
        n, c, _, width = problem.images.shape
        best = problem.glance(problem.project(problem.images + problem.radius * _signs((n, c, 1, width), generator)))
        for first in range(1, self.queries, TOGETHER):
            rows = (~best.fooled).nonzero()[:, 0]
            if not len(rows):
                break
            part, standing = problem.select(rows), Points(*(own[rows] for own in best))
            for query in range(first, min(first + TOGETHER, self.queries)):
                inside = self._squares(part.images, query, generator)
                signs = _signs((*part.images.shape[:2], 1, 1), generator)
                painted = part.project(part.images + part.radius * signs)
                standing = standing.better(part.glance(torch.where(inside, painted, standing.images)))
            best = best.merged(rows, standing)
        return best

    def _squares(self, images: Tensor, query: int, generator: torch.Generator) -> Tensor:
        """Return which pixels are in the square of each image ``[n, 1, h, w]``."""
        height, width = images.shape[2:]
        area = self.share * 0.5 ** sum(query > share * self.queries for share in HALVINGS)
        side = min(max(1, round((area * height * width) ** 0.5)), height, width)
        corners = torch.rand(2, len(images), 1, generator=generator, device=images.device)
        inside: list[Tensor] = []
        for corner, length in zip(corners, (height, width), strict=True):
            first = (corner * (length - side + 1)).floor()
            pixels = torch.arange(length, device=images.device)
            inside.append((pixels >= first) & (pixels < first + side))
        return (inside[0][:, :, None] & inside[1][:, None])[:, None]


def _signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Return -1 or 1, each as likely."""
    return torch.randint(0, 2, shape, generator=generator, device=generator.device) * 2 - 1
