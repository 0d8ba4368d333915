"""Which encoder: accuracy of the closed form by encoder and examples a label, and whether ``encoders try`` finds the best one.

    python benchmarks/encoders.py FOLDER NAME=DATA [NAME=DATA ...] [--encoders dinov2-small ...] [--keep docs/results/measured/encoders.jsonl]

Each DATA is whatever ``labelwise fit`` reads; ``photo_sets.py tables`` makes tables of the originals, with paths below ``--root``. Of each set at most
``MOST_LABELS`` labels and ``MOST_IMAGES`` images are drawn, equally from all labels. A third of these is the test set, by a draw for each seed, with lookalikes on one
side. Features stay in FOLDER/NAME-ENCODER.npz, results in FOLDER/NAME.jsonl, so a run that was stopped goes on. Encoders must be installed; ``--encode`` measures nothing else.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import labelwise as lw
from labelwise.encoders.encode import encode
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.registry import joined_names, open_encoder
from labelwise.fitting.try_encoders import try_encoders
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool
from labelwise.images.split.lookalikes import lookalike_groups
from labelwise.images.split.make import Shares, divide_groups
from labelwise.methods.discriminant.fit import fit_discriminant, with_second_opinion

ENCODERS = ("efficientnet_lite0", "efficientnet_lite2", "tinyvit-5m", "dinov2-small")
SHOTS = (1, 2, 5, 10, 20, 0)  # examples a label, 0 is all
MOST_LABELS, MOST_IMAGES = 20, 300
TRIED = 1  # draws on which `encoders try` is run
TIMED = 16  # images to measure the time of
THIRDS = Shares(train=2 / 3, val=0, test=1 / 3)
Array = np.ndarray[Any, Any]


def sample_of(source: str, root: Path | None) -> Dataset:
    """Draw a sample of a set, see the head of this file."""
    data = lw.data.load(source, root=root, group="none")
    whole, rng = pool(data), np.random.default_rng(0)
    labels = np.sort(rng.permutation(np.unique(whole.targets[whole.targets >= 0]))[:MOST_LABELS])
    most = MOST_IMAGES // len(labels)
    rows = [rng.permutation(np.flatnonzero(whole.targets == label))[:most] for label in labels]
    some = whole.select(np.sort(np.concatenate(rows)))
    split = Split(
        images=some.images, targets=np.searchsorted(labels, some.targets), groups=tuple(lookalike_groups(some.images))
    )
    names = tuple(data.labels.names[label] for label in labels)
    return Dataset(name=Path(source).stem, labels=Labels(names=names), splits={"train": split})


def write_features(file: Path, encoder: str, data: Dataset) -> None:
    """Write the features of images and the time of one, decoding included, on one thread."""
    network, images = open_encoder(encoder), data.splits["train"].images
    few = images.select(range(0, len(images), len(images) // TIMED))
    encode(network, few.select([0]), cache=False)  # opens the file
    began = time.process_time()
    encode(network, few, cache=False, workers=1, progress=False)
    ms = 1000 * (time.process_time() - began) / len(few)
    features = encode(network, images, workers=1, progress=False)
    if features.skipped:
        raise SystemExit(f"{features.skipped[0].file} cannot be read.")
    np.savez(
        file, features=features.values, labels=data.splits["train"].targets, names=np.array(data.labels.names), ms=ms
    )
    print(f"{file.stem}: {len(features)} images, {ms:.1f} ms of a core each", flush=True)


def figures(
    features: Array, targets: Array, labels: Labels, parts: dict[str, Array], cell: tuple[int, int]
) -> dict[str, Any]:
    """Return the accuracy of the closed form with some examples a label."""
    shots, seed = cell
    rng = np.random.default_rng(seed)
    train, test = parts["train"], parts["test"]
    rows = np.concatenate(
        [rng.permutation(train[targets[train] == label])[: shots or None] for label in range(len(labels))]
    )
    fitted = with_second_opinion(fit_discriminant(features[rows], targets[rows], labels))
    scores = fitted.head.score(fitted.head.embed(features[test]), fitted.head.embed_labels(labels))
    right = scores.argmax(1) == targets[test]
    return {"train": len(rows), "test": len(test), "accuracy": round(float(right.mean()), 4)}


def measure(folder: Path, name: str, data: Dataset, options: argparse.Namespace) -> None:
    """Measure the cells of a set that were not measured yet, and write a line for each."""
    file, split = folder / f"{name}.jsonl", data.splits["train"]
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {(line["encoder"], line.get("examples"), line["seed"]) for line in lines}
    stored = {each: np.load(folder / f"{name}-{each}.npz")["features"] for each in options.encoders}
    for seed in range(options.seeds):
        parts = divide_groups(split.groups, split.targets, THIRDS, seed)
        for encoder, features in stored.items():
            for shots in (each for each in SHOTS if (encoder, each, seed) not in done):
                line = figures(features, split.targets, data.labels, parts, (shots, seed))
                add(
                    file,
                    {
                        "set": name,
                        "encoder": encoder,
                        "labels": len(data.labels),
                        "examples": shots,
                        "seed": seed,
                        **line,
                    },
                )
        if seed < TRIED and ("try", None, seed) not in done:
            train = replace(data, splits={"train": split.select(parts["train"])})
            trials = try_encoders(train, seed=seed)
            (joined,) = (each.name for each in trials if "+" in each.name)
            several = JoinedEncoder(tuple(map(open_encoder, joined_names(joined)))).join(
                [stored[each] for each in joined_names(joined)]
            )
            line = figures(several, split.targets, data.labels, parts, (0, seed))
            add(file, {"set": name, "encoder": joined, "labels": len(data.labels), "examples": 0, "seed": seed, **line})
            told = {
                each.name: (round(each.accuracy, 4), each is trials[0], round(each.probability, 4)) for each in trials
            }
            add(file, {"set": name, "encoder": "try", "seed": seed, "trials": told})


def add(file: Path, line: dict[str, Any]) -> None:
    with file.open("a") as stream:
        stream.write(json.dumps(line) + "\n")
    print(*line.values(), flush=True)


def tables(lines: list[dict[str, Any]], times: dict[str, list[float]]) -> str:
    """Return the tables of the page: accuracy by set, its mean, and what ``encoders try`` chose."""
    cells: dict[tuple[str, str, int], list[float]] = {}
    for line in (each for each in lines if each["encoder"] != "try"):
        cells.setdefault((line["set"], line["encoder"], line["examples"]), []).append(100 * line["accuracy"])
    names = sorted({name for name, *_ in cells})
    head = ["set (labels, images)", "encoder", *(str(shots or "all") for shots in SHOTS)]
    rows = [head, ["---"] * len(head)]
    for name in names:
        about = next(line for line in lines if line["set"] == name and line.get("examples") == 0)
        for encoder in ENCODERS:
            first = f"{name} ({about['labels']}, {about['train'] + about['test']})" if encoder == ENCODERS[0] else ""
            values = (cells[name, encoder, shots] for shots in SHOTS)
            rows.append([first, encoder, *(f"{np.mean(each):.1f} +- {np.std(each):.1f}" for each in values)])
    for encoder in ENCODERS:
        means = [np.mean([np.mean(cells[name, encoder, shots]) for name in names]) for shots in SHOTS]
        title = f"{encoder}, {np.mean(times[encoder]):.1f} ms"
        rows.append(["**mean**" if encoder == ENCODERS[0] else "", title, *(f"**{each:.1f}**" for each in means)])
    rows += [[], ["set", "chosen by leave-one-out", "test", "best on test", "test"], ["---"] * 5]
    for line in (each for each in lines if each["encoder"] == "try"):
        known = {key[1]: each[0] for key, each in cells.items() if key[0] == line["set"] and key[2] == 0}
        chosen, best = (
            next(key for key, (_, is_best, *_) in line["trials"].items() if is_best),
            max(known, key=lambda key: known[key]),
        )
        rows.append([line["set"], chosen, f"{known[chosen]:.1f}", best, f"{known[best]:.1f}"])
    return "".join(f"| {' | '.join(row)} |\n" if row else "\n" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+", metavar="NAME=DATA")
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--root", type=Path)
    parser.add_argument("--encode", action="store_true", help="encode, and measure later")
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, source in (word.split("=", 1) for word in options.sets):
        data = sample_of(source, options.root)
        print(f"{name}: {len(data.splits['train'])} images of {len(data.labels)} labels", flush=True)
        for encoder in options.encoders:
            file = options.folder / f"{name}-{encoder}.npz"
            if not file.exists():
                write_features(file, encoder, data)
        if not options.encode:
            measure(options.folder, name, data, options)
    if options.keep:
        lines = [line for file in sorted(options.folder.glob("*.jsonl")) for line in file.read_text().splitlines()]
        options.keep.write_text("".join(f"{line}\n" for line in lines))
        packs = {each: options.folder.glob(f"*-{each}.npz") for each in options.encoders}
        times = {each: [float(np.load(file)["ms"]) for file in files] for each, files in packs.items()}
        print(tables([json.loads(line) for line in lines], times))


if __name__ == "__main__":
    main()
