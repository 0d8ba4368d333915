"""Distances between embeddings, and the loss of finding the text of an image and the image of a text."""

import torch
from torch import Tensor


def distances(a: Tensor, b: Tensor) -> Tensor:
    """Return Euclidean distances ``[n, k]`` of embeddings ``[n, e]`` and ``[k, e]``, at least in single precision.

    Squares and products are summed in double precision, so that little is lost where embeddings are close to each other.
    The gradient of a distance of zero is zero, where the true one is not defined.
    """
    x, y = a.double(), b.double()
    squares = x.square().sum(1)[:, None] + y.square().sum(1) - 2 * (x @ y.T)
    distinct = squares > 0
    roots = torch.where(distinct, squares, 1.0).sqrt() * distinct
    return roots.to(torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32))


def retrieval_loss(
    image_embeddings: Tensor, text_embeddings: Tensor, share: float, same: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the text term and the image term of the retrieval loss; the loss is their sum.

    The score of an image and a text is minus their distance. The text term is lambda J_TR: for each image, minus the log
    of the probability of its text among the texts of the batch. The image term is (1 - lambda) J_IR: for each text,
    the same among the images (CLAREL, algorithm 1).
    ``share`` is lambda. ``same [n, n]`` is True where text j is right for image i as well; right answers share one probability,
    their sum.
    """
    scores = -distances(image_embeddings, text_embeddings)
    right = torch.eye(len(scores), dtype=torch.bool, device=scores.device)
    wrong = ~right if same is None else ~(right | same)
    text, image = (-scores.log_softmax(axis).masked_fill(wrong, -torch.inf).logsumexp(axis).mean() for axis in (1, 0))
    return share * text, (1 - share) * image
