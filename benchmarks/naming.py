"""Naming clusters without a label, measured: draws of ten classes of CIFAR-100 and TinyImageNet, and CIFAR-10. Data lie in the folder LABELWISE_DATA.

    python benchmarks/naming.py codes lite0.npz            codes of EfficientNet-lite0, trained on ImageNet (extra ``pretrained``)
    python benchmarks/naming.py codes patches.npz --patches    codes of an encoder that saw no label, found on these pictures
    python benchmarks/naming.py pictures draws.npz         the pictures, to encode elsewhere (``paper_encoder.py --draws``)
    python benchmarks/naming.py texts texts.npz --codes lite0.npz --packages FOLDER    what texts say about the names
    python benchmarks/naming.py draws lite0.npz [--texts texts.npz] [--half report] [--draws 60] [--shares] [--encoder NAME] [--out naming.jsonl]
    python benchmarks/naming.py cifar10 --codes FILE [--seeds 5] [--encoder NAME] [--out naming.jsonl]
    python benchmarks/naming.py table naming.jsonl picture.png      a picture of what was measured

``draws``: with texts every source on true classes, which is its ceiling; then the clusters that the method finds; with ``--shares`` the latter alone, of classes that are unequal and known to be. ``cifar10``: codes (``f``, ``ft``) in the order of
cifar10.npz, whose pictures are looked at; accuracy on test images. Labels are read to draw and to judge, never to cluster or to name. "words and sentences" needs the extra ``text``.
"""

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import naming_tables
import numpy as np
import torch
from naming_data import (
    DIRECTIONS,
    RESTARTS,
    Classes,
    K,
    clusterings,
    draws,
    halves,
    in_directions,
    read_classes,
    write_codes,
    write_pictures,
)
from naming_sources import PRIORS, TOGETHER, Row, likenesses, of_draw, true_rows
from naming_texts import write_texts
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from labelwise.core.arrays import Array
from labelwise.data import load
from labelwise.images.describe.labels import Labels
from labelwise.methods.zero_label.assignment import best_matching
from labelwise.methods.zero_label.kinds import looks_fit
from labelwise.methods.zero_label.label_prior import label_similarity
from labelwise.methods.zero_label.looks import looks
from labelwise.methods.zero_label.method import MOST_EMBEDDINGS, ZeroLabel
from labelwise.methods.zero_label.naming import Evidence, choose_names, name_each, vote
from labelwise.train.tensors import linear_scores, segment_mean

SHARES = (range(1, K + 1), range(K, 2 * K))  # very unequal, and a little
SEARCH = 100  # matchings of a draw that are improved, where the method has 500


def chosen(evidence: Evidence, search: int = SEARCH) -> Array:
    """Return what the clusters of the first clustering are called ``[k]``, the method's way."""
    return choose_names(vote(evidence, name_each(evidence, search)))


def mean_looks(seen: Tensor, members: Tensor) -> Array:
    """Return the mean looks ``[r, k, looks]`` of pictures in each cluster of some clusterings ``[r, n]``."""
    return torch.stack([segment_mean(seen, own, K) for own in members]).numpy()


def namings(
    codes: Tensor, seen: Tensor, members: Tensor, names: tuple[str, ...], search: int
) -> Iterator[tuple[str, Array]]:
    """Yield what the clusters of the first of some clusterings ``[r, n]`` are called ``[k]``, by each source, the method's way."""
    means = mean_looks(seen, members)
    for kind, prior in PRIORS.items():
        alike = label_similarity(Labels(names=names), prior, neighbours=ZeroLabel().neighbours)  # type: ignore[arg-type]
        plain, fit = (
            Evidence.of(codes.numpy(), members.numpy(), alike),
            looks_fit(means, names, sentences=prior == "sentences"),
        )
        yield f"looks, {kind}", best_matching((plain.overlaps @ fit).mean(0))
        for title, evidence in (("likeness", plain), ("looks and likeness", replace(plain, looks=fit))):
            yield f"{title}, {kind}", chosen(evidence, search)


def five_sources(codes: Tensor, members: Tensor, texts: dict[str, Array]) -> Iterator[tuple[str, Array]]:
    """Yield what the clusters of the first of some clusterings ``[r, n]`` are called ``[k]`` where all clusterings and five sources of likeness vote."""
    alike = likenesses(texts)
    every = [Evidence.of(codes.numpy(), members.numpy(), alike[name]) for name in TOGETHER]
    votes = np.stack([vote(evidence, name_each(evidence, SEARCH)) for evidence in every])
    yield "likeness, five sources vote", choose_names(votes.mean(0))


def equal_shares(classes: Classes, rows: Tensor, seed: int, texts: dict[str, Array]) -> Iterator[Row]:
    """Yield the share of pictures named rightly where the classes of a draw have equally many; texts may be left out."""
    codes = in_directions(normalize(classes.codes[rows].flatten(0, 1), dim=1), DIRECTIONS)
    _, members = clusterings(codes, RESTARTS, seed)
    names = tuple(classes.names[i] for i in rows.tolist())
    named = namings(codes, classes.looks[rows].flatten(0, 1), members, names, SEARCH)
    if texts:
        named = chain(named, five_sources(codes, members, texts))
    truth = torch.arange(K).repeat_interleave(classes.codes.shape[1])
    for title, value in judged(members[0], truth, named):
        yield f"found clusters: {title}", value


def unequal_shares(classes: Classes, rows: Tensor, seed: int, parts: range) -> Iterator[Row]:
    """Yield the share of pictures named rightly where the classes of a draw are so many parts of the pictures, and that is known."""
    shares = torch.tensor(parts) / sum(parts)
    counts = (classes.codes.shape[1] * torch.tensor(parts) / max(parts)).round().long().tolist()
    codes = torch.cat([classes.codes[row][:count] for row, count in zip(rows, counts, strict=True)])
    seen = torch.cat([classes.looks[row][:count] for row, count in zip(rows, counts, strict=True)])
    truth = torch.arange(K).repeat_interleave(torch.tensor(counts))
    codes = in_directions(normalize(codes, dim=1), DIRECTIONS)
    _, members = clusterings(codes, RESTARTS, seed, shares)
    names = tuple(classes.names[i] for i in rows.tolist())
    alike = label_similarity(Labels(names=names), "sentences", neighbours=10)
    evidence = Evidence.of(codes.numpy(), members.numpy(), alike, shares.numpy())
    looking = replace(evidence, looks=looks_fit(mean_looks(seen, members), names, sentences=True))
    apart = np.abs(np.log(np.maximum(evidence.sizes[0][:, None], 1e-4)) - np.log(shares.double().numpy()))
    named = {
        "size alone": best_matching(-apart),
        "likeness and size": chosen(evidence),
        "looks and likeness": chosen(replace(looking, shares=None)),
        "looks, likeness and size": chosen(looking),
    }
    for title, value in judged(members[0], truth, iter(named.items())):
        yield f"shares of {parts[0]} to {parts[-1]} parts that are known, found clusters: {title}", value


def judged(clusters: Tensor, truth: Tensor, named: Iterator[tuple[str, Array]]) -> Iterator[Row]:
    """Yield the share of pictures that are named rightly, with the best names for their clusters ``[n]`` and by each naming."""
    inside = (one_hot(clusters, K).double().T @ one_hot(truth, K).double() / len(truth)).numpy()
    for title, chosen in (("best names", best_matching(inside)), *named):
        yield title, float(inside[range(K), chosen].sum())


def standard_error(values: Tensor) -> float:
    """Return that of a mean over draws."""
    return float(values.std() / len(values) ** 0.5)


def measured(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the mean over draws of every row, and its standard error; ``gain``: what sentences add to words, draw by draw."""
    sets, found, texts = read_classes(given.codes), defaultdict[str, list[float]](list), dict[str, Tensor]()
    if given.texts is not None:
        with np.load(given.texts) as held:
            texts = {key: torch.from_numpy(held[key]) for key in held.files}
    generator = torch.Generator().manual_seed(1)
    for place, (name, rows) in enumerate(draws(sets, given.half, given.draws)):
        own = {key.split("/")[1]: value for key, value in texts.items() if key.startswith(name)}
        every = list[Row]()
        if given.shares:
            every += [row for parts in SHARES for row in unequal_shares(sets[name], rows, place, parts)]
        else:
            if texts:
                others = halves(sets[name], "choose" if given.half == "report" else "report")
                every += true_rows(sets[name], rows, others, own, generator)
            every += equal_shares(sets[name], rows, place, of_draw(own, rows))
        for row, value in every:
            found[row].append(value)
    for row, values in found.items():
        table = 100 * torch.tensor(values, dtype=torch.float64)
        middle = len(table) // 2
        gain = table - 100 * torch.tensor(found.get(row.removesuffix(" and sentences"), values), dtype=torch.float64)
        yield {
            "encoder": given.encoder, "half": given.half, "row": row, "draws": len(table), "mean": float(table.mean()),
            "error": standard_error(table), "tenth": float(table.quantile(0.1)), "cifar100": float(table[:middle].mean()),
            "tinyimagenet": float(table[middle:].mean()), "gain": float(gain.mean()), "gain_error": standard_error(gain),
        }  # fmt: skip


def cifar10(given: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the accuracy on CIFAR-10's test images of every row and seed."""
    data = load("cifar10", root=os.environ["LABELWISE_DATA"])
    with np.load(given.codes) as held:
        train, test = (torch.from_numpy(held[key]).float() for key in ("f", "ft"))
    centre = train.mean(0)
    train, test = (normalize(each - centre, dim=1) for each in (train, test))
    rows = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:MOST_EMBEDDINGS]
    images = data.split("train").images
    parts = [looks(np.asarray(images.select(some.numpy()).read())) for some in torch.split(rows, 500)]
    seen = torch.from_numpy(np.concatenate(parts)).double()
    for seed in range(given.seeds):
        heads, members = clusterings(train[rows], ZeroLabel().restarts, seed)
        named = namings(train[rows], seen, members, tuple(data.labels.names), ZeroLabel().search)
        clusters = linear_scores(test, heads[0]).argmax(1)
        for row, value in judged(clusters, data.split("test").targets, named):
            yield {"encoder": given.encoder, "row": row, "seed": seed, "accuracy": 100 * value}


def told(lines: Iterator[dict[str, Any]], out: Path | None) -> None:
    """Print results, and add them to a file, a line each."""
    for line in lines:
        words = ("mean", "error", "tenth", "cifar100", "tinyimagenet", "gain", "gain_error", "accuracy")
        print(f"{line['row']:60s}", *(f"{word} {line[word]:.1f}" for word in words if word in line), flush=True)
        if out is not None:
            with out.open("a") as file:
                file.write(json.dumps(line) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    own = {verb: verbs.add_parser(verb) for verb in ("codes", "pictures", "texts", "draws", "cifar10", "table")}
    for verb in ("codes", "pictures", "texts"):
        own[verb].add_argument("file", type=Path, help="what is written (.npz)")
    own["codes"].add_argument("--patches", action="store_true")
    own["texts"].add_argument("--codes", type=Path, required=True, help="a file of codes, which holds the names")
    own["texts"].add_argument("--packages", type=Path, required=True, help="see naming_texts.py")
    own["draws"].add_argument("codes", type=Path)
    own["draws"].add_argument("--texts", type=Path)
    own["draws"].add_argument("--half", choices=("choose", "report"), default="report")
    own["draws"].add_argument("--draws", type=int, default=60, help="of each of four kinds")
    own["draws"].add_argument("--shares", action="store_true", help="classes of unequal shares")
    own["cifar10"].add_argument("--codes", type=Path, required=True)
    own["cifar10"].add_argument("--seeds", type=int, default=5)
    for verb, encoder in (("draws", "ImageNet"), ("cifar10", "CIFAR-10")):
        own[verb].add_argument("--encoder", default=encoder, help="what to call the encoder of the codes")
        own[verb].add_argument("--out", type=Path, help="results are added to this file, a line each")
    own["table"].add_argument("measured", type=Path)
    own["table"].add_argument("picture", type=Path)
    given = parser.parse_args()
    if given.verb in ("draws", "cifar10"):
        told((measured if given.verb == "draws" else cifar10)(given), given.out)
    elif given.verb == "codes":
        write_codes(given.file, patches=given.patches)
    elif given.verb == "pictures":
        write_pictures(given.file)
    elif given.verb == "texts":
        write_texts(given.codes, given.packages, given.file)
    else:
        naming_tables.picture(naming_tables.read(given.measured), given.picture)


if __name__ == "__main__":
    main()
