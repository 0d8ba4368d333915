"""What tells names from names alone? Every source on draws of ten classes of CIFAR-100 and TinyImageNet, half of the classes held back.

    LABELWISE_DATA=FOLDER python benchmarks/naming_sources.py --codes FILE --texts FILE [--half report] [--draws 60] [--encoder NAME]
        [--rows true,clusters] [--out docs/results/measured/naming.jsonl]

``--codes``: what ``naming_choice.py`` (ImageNet encoder) or ``naming_encoder.py`` (no label seen) wrote. ``--texts``: of ``naming_texts.py``. Half of the classes
of each set are for choosing, the others for the report: no draw mixes them. Draws are as in ``naming_choice.py``, ``--draws`` of each of four kinds. Rows of "true"
take the classes themselves for clusters, which is the ceiling of a source; rows of "clusters" those that the method finds. Looks of pictures and
clusters are kept beside the codes. CIFAR-10 plays no part here: ``naming_cifar10.py``.
"""

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from naming_choice import CODE_SIZE, IMAGES, LEFT_OUT, Classes, K, animal_names, clusterings, draw, in_directions
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from labelwise.data.read.packs import pack
from labelwise.labels import Labels
from labelwise.methods.shared.kinds import looks_fit
from labelwise.methods.shared.label_prior import centred_cosines, label_similarity
from labelwise.methods.shared.naming import LOOKS_WEIGHT, Evidence, choose_names, name_each, vote
from labelwise.ops.assignment import (
    Structure,
    best_matching,
    gibbs_average,
    improve,
    matching_scores,
    random_matchings,
    standardised,
)
from labelwise.ops.looks import LOOKS, looks
from labelwise.ops.segments import segment_mean

SETS = tuple(IMAGES)
SOURCES = ("words", "words of 100 numbers", "photo", "looks like", "gloss", "sentences of CuPL", "descriptions by GPT")
TREES = ("WordNet path", "WordNet Lin")
TOGETHER = ("words", "words of 100 numbers", "photo", "gloss", "WordNet path")
COLOURED = torch.tensor([" " in look for look in LOOKS])
Row = tuple[str, float]


def picture_looks(data: str, most: int) -> Tensor:
    """Return the looks of ``most`` pictures of each class that is not left out ``[c, most, looks]``, in the order of its codes."""
    held = pack(Path(os.environ["LABELWISE_DATA"]) / f"{data}.npz")
    images, targets = (
        torch.cat([getattr(held.splits[part], what) for part in held.splits]) for what in ("images", "targets")
    )
    kept = [i for i, name in enumerate(held.labels.names) if name.split(",")[0] not in LEFT_OUT]
    rows = torch.cat([(targets == i).nonzero()[:most, 0] for i in kept])
    made = [looks(images[part].float() / 255) for part in torch.split(rows, 500)]
    return torch.cat(made).view(len(kept), most, -1)


def open_codes(file: Path) -> dict[str, tuple[Classes, Tensor]]:
    """Return the classes of each set, and the looks of their pictures, which are kept in a file beside."""
    beside, found = file.with_suffix(".looks.npz"), {}
    with np.load(file) as held:
        for data in SETS:
            names, codes = (
                [str(name) for name in held[f"{data}/names"]],
                torch.from_numpy(held[f"{data}/codes"]).float(),
            )
            if codes.ndim == 2:  # of naming_encoder.py, with the classes that are left out
                codes = codes.view(len(names), -1, codes.shape[-1])
            kept = [i for i, name in enumerate(names) if name not in LEFT_OUT]
            folder = Path(os.environ["LABELWISE_DATA"])
            animals = {name.split(",")[0] for name in animal_names(folder / f"{data}.npz")}
            names = [names[i] for i in kept]
            flags = torch.tensor([name in animals for name in names])
            found[data] = Classes(codes[kept], tuple(names), flags)
    if not beside.exists():
        made = {data: picture_looks(data, own.codes.shape[1]).numpy() for data, own in found.items()}
        np.savez(beside, allow_pickle=False, **made)
    with np.load(beside) as held:
        return {data: (own, torch.from_numpy(held[data]).double()) for data, own in found.items()}


def halves(classes: Classes, half: str) -> Tensor:
    """Return the classes for choosing, or for the report."""
    order = torch.randperm(len(classes.names), generator=torch.Generator().manual_seed(0))
    middle = len(order) // 2
    return order[:middle] if half == "choose" else order[middle:]


def draws(sets: dict[str, tuple[Classes, Tensor]], half: str, count: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the data set and the ten classes of each draw."""
    for place, (data, (classes, _)) in enumerate(sets.items()):
        pool = halves(classes, half)
        own = Classes(classes.codes[:0], tuple(classes.names[i] for i in pool.tolist()), classes.animals[pool])
        for mixed in (True, False):
            generator = torch.Generator().manual_seed(10 * (half == "report") + 2 * place + mixed)
            for _ in range(count):
                yield data, pool[draw(own, mixed, generator)]


def matched(clusters: Tensor, labels: Tensor, fits: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the table of averaged matchings ``[k, k]``, and the best matching alone ``[k]``."""
    structure = Structure.of(clusters, labels, fits)
    matchings = improve(structure, random_matchings(100, K, torch.Generator().manual_seed(0)))
    scores = matching_scores(structure, matchings)
    return gibbs_average(matchings, scores, 0.2 / K), matchings[scores.argmax()]


def right(naming: Tensor) -> float:
    """Return the share of names that are right where cluster i is class i."""
    return float((naming == torch.arange(K)).double().mean())


def likeness_rows(clusters: Tensor, texts: dict[str, Tensor]) -> Iterator[Row]:
    """Yield how many true classes each source of likeness names rightly."""
    alike = {name: centred_cosines(texts[name].double()) for name in SOURCES} | {name: texts[name] for name in TREES}
    tables = {}
    for name, own in alike.items():
        tables[name], _ = matched(clusters, own)
        yield f"likeness: {name}", right(best_matching(tables[name]))
    table, single = matched(clusters, sum(standardised(alike[name]) for name in TOGETHER))  # type: ignore[arg-type]
    yield "likeness: five together", right(best_matching(table))
    yield "likeness: five together, best matching alone", right(single)
    yield "likeness: five, their answers averaged", right(best_matching(sum(tables[name] for name in TOGETHER)))  # type: ignore[arg-type]


def simulated_rows(clusters: Tensor, generator: torch.Generator) -> Iterator[Row]:
    """Yield how many names are right where label likeness is that of clusters, blurred to a correlation."""
    noise = standardised(torch.randn(K, K, generator=generator, dtype=torch.float64))
    for share in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95):
        table, _ = matched(clusters, share * standardised(clusters) + (1 - share**2) ** 0.5 * noise)
        yield f"simulated likeness, correlation {share}", right(best_matching(table))


def looks_rows(clusters: Tensor, means: Tensor, names: tuple[str, ...]) -> Iterator[Row]:
    """Yield how many true classes their mean looks ``[k, looks]`` name rightly, alone and beside likeness."""
    for kind, prior in (("words", "words"), ("words and sentences", "sentences")):
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


def ridge(inputs: Tensor, outputs: Tensor, level: float = 1.0) -> Callable[[Tensor], Tensor]:
    """Return a linear map from rows of inputs to rows of outputs."""
    first, second = inputs.mean(0), outputs.mean(0)
    rows = inputs - first
    kernel = rows @ rows.T
    eye = torch.eye(len(rows), dtype=rows.dtype)
    weights = rows.T @ torch.linalg.solve(kernel + level * kernel.diagonal().mean() * eye, outputs - second)
    return lambda own: second + (own - first) @ weights


def labelled_rows(means: Tensor, texts: dict[str, Tensor], pools: tuple[Tensor, Tensor], what: str) -> Iterator[Row]:
    """Yield how many classes a map from words to means ``[c, d]`` names rightly that was learnt on other, labelled classes."""
    rows, others = pools
    vectors = torch.cat(
        [normalize(texts[name].double() - texts[name].double().mean(0), dim=1) for name in SOURCES[:5]], 1
    )
    known = means[others]
    scaled = (means - known.mean(0)) / known.std(0).clamp_min(1e-9)
    predicted, own = ridge(vectors[others], scaled[others])(vectors[rows]), scaled[rows]
    unit = [normalize(each - each.mean(0), dim=1) for each in (own, predicted)]
    yield f"OTHER CLASSES LABELLED: map from words to {what}", right(best_matching(unit[0] @ unit[1].T))


def cluster_rows(codes: Tensor, seen: Tensor, names: tuple[str, ...], members: Tensor) -> Iterator[Row]:
    """Yield the share of pictures named rightly with the clusters found ``[r, n]``, the method's way, with and without looks."""
    truth = torch.arange(K).repeat_interleave(len(codes) // K)
    inside = one_hot(members[0], K).double().T @ one_hot(truth, K).double() / len(truth)
    yield "found clusters: best names", float(inside[range(K), best_matching(inside)].sum())
    means = torch.stack([segment_mean(seen, own, K) for own in members])
    for kind, prior in (("words", "words"), ("words and sentences", "sentences")):
        alike = label_similarity(Labels(names=names), prior, neighbours=10)  # type: ignore[arg-type]
        plain = Evidence.of(codes, members, alike)
        fit = looks_fit(means, names, sentences=prior == "sentences")
        yield (
            f"found clusters: looks, {kind}",
            float(inside[range(K), best_matching((plain.overlaps @ fit).mean(0))].sum()),
        )
        with_looks = Evidence(
            clusters=plain.clusters, overlaps=plain.overlaps, sizes=plain.sizes, labels=alike, looks=fit
        )
        for title, evidence in (("likeness", plain), ("looks and likeness", with_looks)):
            chosen = choose_names(vote(evidence, name_each(evidence, 100)))
            yield f"found clusters: {title}, {kind}", float(inside[range(K), chosen].sum())


def measured(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the mean over draws of every row, and its standard error."""
    sets, found = open_codes(given.codes), defaultdict[str, list[float]](list)
    with np.load(given.texts) as held:
        texts = {key: torch.from_numpy(held[key]) for key in held.files}
    cache = given.codes.with_suffix(f".{given.half}{given.draws}.pt")
    kept = torch.load(cache, weights_only=True) if cache.exists() else []
    generator = torch.Generator().manual_seed(1)
    for place, (data, rows) in enumerate(draws(sets, given.half, given.draws)):
        classes, seen = sets[data]
        names, own = tuple(classes.names[i] for i in rows.tolist()), seen.mean(1)
        if "true" in given.rows:
            unit = normalize(classes.codes, dim=2).double().mean(1)
            alike = centred_cosines(unit[rows])
            about = {key.split("/")[1]: value for key, value in texts.items() if key.startswith(data)}
            here = {key: value[rows][:, rows] if key in TREES else value[rows] for key, value in about.items()}
            spread = classes.codes[rows].std(1).mean(1).double()
            fit = (spread - spread.mean())[:, None] * (
                here["kinds below"].double() - here["kinds below"].double().mean()
            ).T
            others = halves(classes, "choose" if given.half == "report" else "report")
            every = [
                *likeness_rows(alike, here),
                ("spread of a cluster, kinds below a name", right(best_matching(fit))),
                *simulated_rows(alike, generator),
                *looks_rows(alike, own[rows], names),
                *labelled_rows(own, about, (rows, others), "looks"),
                *labelled_rows(unit, about, (rows, others), "codes"),
            ]
        else:
            every = []
        if "clusters" in given.rows:
            codes = in_directions(normalize(classes.codes[rows].flatten(0, 1), dim=1), CODE_SIZE)
            if len(kept) <= place:
                truth = torch.arange(K).repeat_interleave(classes.codes.shape[1])
                kept.append(next(clusterings(codes, truth, place))[1].byte())
            every += cluster_rows(codes, seen[rows].flatten(0, 1), names, kept[place].long())
        for row, value in every:
            found[row].append(value)
    torch.save(kept, cache)
    for row, values in found.items():
        table = 100 * torch.tensor(values, dtype=torch.float64)
        middle = len(table) // 2
        yield {
            "encoder": given.encoder, "half": given.half, "row": row, "draws": len(table), "mean": float(table.mean()),
            "error": float(table.std() / len(table) ** 0.5), "cifar100": float(table[:middle].mean()), "tinyimagenet": float(table[middle:].mean()),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--codes", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--half", choices=("choose", "report"), default="report")
    parser.add_argument("--draws", type=int, default=60, help="of each of four kinds")
    parser.add_argument("--encoder", default="ImageNet", help="what to call the encoder of the codes")
    parser.add_argument("--rows", default="true,clusters")
    parser.add_argument("--out", type=Path, help="results are added to this file, a line each")
    given = parser.parse_args()
    for line in measured(given):
        print(
            f"{line['row']:60s} {line['mean']:5.1f} +- {line['error']:.1f}  CIFAR-100 {line['cifar100']:5.1f}  "
            f"TinyImageNet {line['tinyimagenet']:5.1f}",
            flush=True,
        )
        if given.out is not None:
            with given.out.open("a") as file:
                file.write(json.dumps({**line, "rows": given.rows}) + "\n")


if __name__ == "__main__":
    main()
