"""How good an encoder trained without labels is: a vote of the nearest training images, where labels exist to check it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.data.dataset import Split
from labelwise.errors import DataError, UnsupportedError
from labelwise.nn.encoder import ImageEncoder

CHUNK = 2**25  # scores of pairs held at a time


def probe_neighbours(
    encoder: ImageEncoder, train: Split, test: Split, *, k: int = 200, temperature: float = 0.1
) -> dict[str, Any]:
    """Return how well the nearest images of ``train`` name those of ``test``, by the encoder's features; see ``neighbour_votes``.

    Images without a label are left out. Returned are how many images may vote and were asked about, how many voted on each (``k``),
    and the share whose label got the most votes (``accuracy``).
    """
    if train.multilabel or test.multilabel:
        raise UnsupportedError("Neighbours vote for one label of each image; of these, several may be true.")
    known, asked = (split.select((split.targets >= 0).nonzero()[:, 0]) for split in (train, test))
    if not len(known) or not len(asked):
        raise DataError(
            f"The vote needs labelled images on both sides; {len(known)} of train and {len(asked)} of test have a label."
        )
    embeddings, test_embeddings = encoder.features(known.images), encoder.features(asked.images)
    votes = neighbour_votes(
        test_embeddings, embeddings, known.targets.to(embeddings.device), k=k, temperature=temperature
    )
    right = votes.argmax(1).cpu() == asked.targets.cpu()
    images = {"train_images": len(known), "test_images": len(asked)}
    return {**images, "k": min(k, len(known)), "accuracy": float(right.double().mean())}


@torch.no_grad()
def neighbour_votes(
    embeddings: Tensor, known: Tensor, targets: Tensor, *, k: int = 200, temperature: float = 0.1
) -> Tensor:
    """Return the votes for each label ``[n, labels]`` of the nearest known embeddings ``[m, d]`` (Wu et al., 2018).

    Each of the ``k`` known ones of the largest cosine, or of all where there are fewer, votes for its own label with the
    weight ``exp(cosine / temperature)``, relative to the nearest. Only a part of the cosines is held at a time.
    """
    unit, labels = normalize(known.float(), dim=1), int(targets.max()) + 1
    votes = torch.zeros(len(embeddings), labels, device=embeddings.device)
    rows = max(1, CHUNK // len(known))
    for part, out in zip(torch.split(embeddings, rows), torch.split(votes, rows), strict=True):
        cosines, places = (normalize(part.float(), dim=1) @ unit.T).topk(min(k, len(known)), dim=1)
        weights = ((cosines - cosines[:, :1]) / temperature).exp()
        out.scatter_add_(1, targets[places], weights)
    return votes
