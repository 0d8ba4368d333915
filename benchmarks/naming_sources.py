"""What tells names from names alone, where clusters are the true classes: the ceiling of every source, for ``naming.py``."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from naming_data import Classes, K
from torch import Tensor
from torch.nn.functional import normalize

from labelwise.core.arrays import Array
from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.assignment import (
    Structure,
    best_matching,
    gibbs_average,
    improve,
    matching_scores,
    random_matchings,
    standardise,
)
from labelwise.methods.zero_label.kinds import looks_fit
from labelwise.methods.zero_label.label_prior import centred_cosines, label_similarity
from labelwise.methods.zero_label.looks import LOOKS
from labelwise.methods.zero_label.naming import LOOKS_WEIGHT
from labelwise.support.rows import Draws, unit_rows

SOURCES = ("words", "words of 100 numbers", "photo", "looks like", "gloss", "sentences of CuPL", "descriptions by GPT")
TREES = ("WordNet path", "WordNet Lin")
TOGETHER = ("words", "words of 100 numbers", "photo", "gloss", "WordNet path")
COLOURED = np.array([" " in look for look in LOOKS])
PRIORS = {"words": "words", "words and sentences": "sentences"}
# What a name says by itself that the spread of a cluster may show, and whether more of it is more spread.
SPREAD = {"kinds below a name": ("kinds below", 1), "depth of a name": ("steps below the top", -1), "how common a name is": ("how common", 1)}  # fmt: skip
NEAREST = 3  # others that say how much of a hub a cluster or a name is
Row = tuple[str, float]


def matched(clusters: Array, labels: Array, fits: Array | None = None) -> tuple[Array, Array]:
    """Return the table of averaged matchings ``[k, k]``, and the best matching alone ``[k]``."""
    structure = Structure.of(clusters, labels, fits)
    matchings = improve(structure, random_matchings(100, K, Draws(0)))
    scores = matching_scores(structure, matchings)
    return gibbs_average(matchings, scores, 0.2 / K), matchings[scores.argmax()]


def right(naming: Array) -> float:
    """Return the share of names that are right where cluster i is class i."""
    return float((naming == np.arange(K)).mean())


def likeness_rows(clusters: Array, texts: dict[str, Array]) -> Iterator[Row]:
    """Yield how many true classes each source of likeness names rightly."""
    alike, tables = likenesses(texts), {}
    for name, own in alike.items():
        tables[name], _ = matched(clusters, own)
        yield f"likeness: {name}", right(best_matching(tables[name]))
    together = np.stack([standardise(alike[name]) for name in TOGETHER]).sum(0)
    table, single = matched(clusters, together)
    yield "likeness: five together", right(best_matching(table))
    yield "likeness: five together, best matching alone", right(single)
    yield (
        "likeness: five, their answers averaged",
        right(best_matching(np.stack([tables[name] for name in TOGETHER]).sum(0))),
    )
    (bare, own), (other, others) = (without_hubs(each) for each in (clusters, together))
    yield "likeness: five together, hubs taken off", right(best_matching(matched(bare, other)[0]))
    yield "how much of a hub a cluster is, and a name", right(best_matching(own[:, None] * others))


def of_draw(texts: dict[str, Tensor], rows: Tensor) -> dict[str, Array]:
    """Return what texts say about the names of some classes."""
    return {key: (value[rows][:, rows] if key in TREES else value[rows]).numpy() for key, value in texts.items()}


def likenesses(texts: dict[str, Array]) -> dict[str, Array]:
    """Return how alike names are ``[k, k]`` by each source."""
    return {name: centred_cosines(texts[name].astype(np.float64)) for name in SOURCES} | {
        name: texts[name] for name in TREES
    }


def without_hubs(alike: Array) -> tuple[Array, Array]:
    """Return likeness ``[k, k]`` less that of either side to its nearest others, and how much of a hub each is, around the mean ``[k]``."""
    plain = standardise(alike)
    hub = np.sort(np.where(np.eye(K, dtype=bool), -np.inf, plain), axis=1)[:, -NEAREST:].mean(1)
    return 2 * plain - hub[:, None] - hub, hub - hub.mean()


def spread_rows(spread: Array, texts: dict[str, Array]) -> Iterator[Row]:
    """Yield how many true classes are named rightly by how far their codes spread ``[k]``, against one number of each name."""
    for title, (key, sign) in SPREAD.items():
        said = sign * texts[key].astype(np.float64)[:, 0]
        fit = (spread - spread.mean())[:, None] * (said - said.mean())
        yield f"spread of a cluster, {title}", right(best_matching(fit))


def simulated_rows(clusters: Array, generator: torch.Generator) -> Iterator[Row]:
    """Yield how many names are right where label likeness is that of clusters, blurred to a correlation."""
    noise = standardise(torch.randn(K, K, generator=generator, dtype=torch.float64).numpy())
    for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95):
        table, _ = matched(clusters, share * standardise(clusters) + (1 - share**2) ** 0.5 * noise)
        yield f"simulated likeness, correlation {share}", right(best_matching(table))


def looks_rows(clusters: Array, means: Array, names: tuple[str, ...]) -> Iterator[Row]:
    """Yield how many true classes their mean looks ``[k, looks]`` name rightly, alone and beside likeness."""
    for kind, prior in PRIORS.items():
        fit = looks_fit(means, names, sentences=prior == "sentences")
        yield f"looks, {kind}", right(best_matching(fit))
        if prior == "sentences":
            for part, keep in (("colours", COLOURED), ("shapes", ~COLOURED)):
                yield (
                    f"looks, {kind}, {part} alone",
                    right(best_matching(looks_fit(means * keep, names, sentences=True))),
                )
        alike = label_similarity(Labels(names=names), prior, neighbours=10)  # type: ignore[arg-type]
        yield f"likeness, {kind}", right(best_matching(matched(clusters, alike)[0]))
        yield f"looks and likeness, {kind}", right(best_matching(matched(clusters, alike, LOOKS_WEIGHT / K * fit)[0]))


def ridge(inputs: Array, outputs: Array, level: float = 1.0) -> Callable[[Array], Array]:
    """Return a linear map from rows of inputs to rows of outputs."""
    first, second = inputs.mean(0), outputs.mean(0)
    rows = inputs - first
    kernel = rows @ rows.T
    weights = rows.T @ np.linalg.solve(kernel + level * kernel.diagonal().mean() * np.eye(len(rows)), outputs - second)

    def predict(own: Array) -> Array:
        outcome: Array = second + (own - first) @ weights
        return outcome

    return predict


def labelled_rows(means: Array, texts: dict[str, Array], pools: tuple[Array, Array], what: str) -> Iterator[Row]:
    """Yield how many classes a map from words to means ``[c, d]`` names rightly that was learnt on other, labelled classes."""
    rows, others = pools
    every = (texts[name].astype(np.float64) for name in SOURCES[:5])
    vectors = np.concatenate([unit_rows(each - each.mean(0)) for each in every], 1)
    known = means[others]
    scaled = (means - known.mean(0)) / np.maximum(known.std(0, ddof=1), 1e-9)
    predicted, own = ridge(vectors[others], scaled[others])(vectors[rows]), scaled[rows]
    unit = [unit_rows(each - each.mean(0)) for each in (own, predicted)]
    yield f"OTHER CLASSES LABELLED: map from words to {what}", right(best_matching(unit[0] @ unit[1].T))


def true_rows(
    classes: Classes, rows: Tensor, others: Tensor, texts: dict[str, Tensor], generator: torch.Generator
) -> list[Row]:
    """Return the share of the ten classes of a draw that each source names rightly; ``others`` are those that a map may be learnt on."""
    unit, seen = normalize(classes.codes, dim=2).double().mean(1).numpy(), classes.looks.mean(1).numpy()
    alike, pools = centred_cosines(unit[rows.numpy()]), (rows.numpy(), others.numpy())
    whole = {name: texts[name].numpy() for name in texts}
    here = of_draw(texts, rows)
    return [
        *likeness_rows(alike, here),
        *spread_rows(classes.codes[rows].std(1).mean(1).double().numpy(), here),
        *simulated_rows(alike, generator),
        *looks_rows(alike, seen[pools[0]], tuple(classes.names[i] for i in rows.tolist())),
        *labelled_rows(seen, whole, pools, "looks"),
        *labelled_rows(unit, whole, pools, "codes"),
    ]
