"""Which encoder: accuracy of the closed form by encoder and examples a label, on samples of photo sets.

    python benchmarks/encoders.py FOLDER NAME=DATA [NAME=DATA ...] [--encoders dinov2-small ...] [--keep docs/results/measured/encoders.jsonl]

Each DATA is a folder of photos with a folder for each label, a table with the columns path, label and split (``photo_sets.py tables`` makes
them, their paths are below ``--root``), or an ``.npz`` pack of encoded images. Of each a sample is drawn: at most 20 labels, at most 200
training and 120 test images. Features stay in FOLDER as ``NAME-ENCODER.npz``, so a run that was stopped goes on. Encoders must be at hand.
"""

import argparse
import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from labelwise.encoders.encode import encode
from labelwise.encoders.joined import JoinedEncoder
from labelwise.encoders.registry import open_encoder
from labelwise.images.as_images import Uploads
from labelwise.images.describe.labels import Labels
from labelwise.images.images import Images
from labelwise.images.stored import FileImages
from labelwise.methods.discriminant.fit import fit_discriminant, with_second_opinion

ENCODERS = ("efficientnet_lite0", "tinyvit-5m", "dinov2-small")
JOINED = (("dinov2-small", "efficientnet_lite0"), ("dinov2-small", "tinyvit-5m"))
SHOTS, DRAWS = (1, 2, 5, 10, 20, 0), 3  # examples a label, 0 is all; draws of these
MOST_LABELS, TRAIN, TEST, LEAST_TRAIN, LEAST_TEST = 20, 200, 120, 30, 20
Array = np.ndarray[Any, Any]
Row = tuple[Any, str, bool | None]  # a file or its content, the label, whether it is for tests; None: not said


def rows_of(source: Path, root: Path) -> list[Row]:
    if source.suffix == ".csv":
        with source.open(newline="") as stream:
            return [(root / row["path"], row["label"], row["split"] == "test") for row in csv.DictReader(stream)]
    if source.is_dir():
        return [(file, file.parent.name, None) for file in sorted(source.glob("*/*")) if file.is_file()]
    pack = np.load(source)
    data, ends = pack["data"], pack["offsets"]
    test = [None] * len(pack["labels"]) if "split" not in pack else (pack["split"] == pack["split"].max()).tolist()
    names = [str(pack["classes"][label]) for label in pack["labels"]]
    return [(data[ends[i] : ends[i + 1]].tobytes(), names[i], test[i]) for i in range(len(names))]


def drawn(rows: list[Row], seed: int = 0) -> tuple[Images, Array, Array, list[str]]:
    """Return images of a sample, the label of each, whether it is for tests, and the names of labels."""
    rng, every = np.random.default_rng(seed), sorted({label for _, label, _ in rows})
    names = [every[i] for i in sorted(rng.permutation(len(every))[:MOST_LABELS])]
    train, test = min(LEAST_TRAIN, TRAIN // len(names)), min(LEAST_TEST, TEST // len(names))
    chosen: list[tuple[int, bool]] = []
    for name in names:
        mine = [i for i, row in enumerate(rows) if row[1] == name]
        mine = [mine[place] for place in rng.permutation(len(mine))]
        if rows[mine[0]][2] is None:
            few = min(test, len(mine) // 3)
            parts = mine[few:], mine[:few]
        else:
            parts = [i for i in mine if not rows[i][2]], [i for i in mine if rows[i][2]]
        chosen += [(i, False) for i in parts[0][:train]] + [(i, True) for i in parts[1][:test]]
    sources = [rows[i][0] for i, _ in chosen]
    images: Images = FileImages(sources) if isinstance(sources[0], Path) else Uploads(sources)
    labels = np.array([names.index(rows[i][1]) for i, _ in chosen])
    return images, labels, np.array([held for _, held in chosen]), names


def write_features(file: Path, encoder: str, sample: tuple[Images, Array, Array, list[str]]) -> None:
    images, labels, test, names = sample
    began = time.process_time()
    features = encode(open_encoder(encoder), images, workers=1)
    ms = 1000 * (time.process_time() - began) / len(images)
    print(f"{file.stem}: {len(features)} images, {ms:.1f} ms of a core each", flush=True)
    rows = features.rows
    np.savez(file, features=features.values, labels=labels[rows], test=test[rows], classes=np.array(names), ms=ms)


def measured(name: str, encoder: str, pack: Any) -> Iterator[dict[str, Any]]:
    features, targets, test = pack["features"], pack["labels"], pack["test"].astype(bool)
    labels, pool = Labels(names=tuple(map(str, pack["classes"]))), np.flatnonzero(~test)
    for shots in (shots for shots in SHOTS if shots <= np.bincount(targets[pool]).min()):
        figures = []
        for draw in range(DRAWS if shots else 1):
            rng = np.random.default_rng(draw)
            picked = [rng.permutation(pool[targets[pool] == label])[: shots or None] for label in range(len(labels))]
            rows = np.concatenate(picked)
            fitted = with_second_opinion(fit_discriminant(features[rows], targets[rows], labels))
            head, left = fitted.head, fitted.leave_one_out()
            scores = head.score(head.embed(features[test]), head.embed_labels(labels))
            right = (left.scores.argmax(1) == targets[rows][left.rows]) & left.usable
            figures.append(((scores.argmax(1) == targets[test]).mean(), right.mean()))
        mean, spread = np.mean(figures, 0), np.std(figures, 0)
        yield {
            "set": name, "encoder": encoder, "labels": len(labels), "examples": shots, "train": len(rows), "test": int(test.sum()),
            "accuracy": round(float(mean[0]), 4), "spread": round(float(spread[0]), 4), "draws": len(figures),
            "leave_one_out": round(float(mean[1]), 4),
        }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="+", metavar="NAME=DATA")
    parser.add_argument("--encoders", nargs="+", default=list(ENCODERS))
    parser.add_argument("--root", type=Path, default=Path())
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    lines: list[dict[str, Any]] = []
    for name, source in (word.split("=", 1) for word in options.sets):
        sample, packs = None, {}
        for encoder in options.encoders:
            file = options.folder / f"{name}-{encoder}.npz"
            if not file.exists():
                sample = sample or drawn(rows_of(Path(source), options.root))
                write_features(file, encoder, sample)
            packs[encoder] = dict(np.load(file))
        for parts in (parts for parts in JOINED if set(parts) <= set(packs)):
            joined = JoinedEncoder(tuple(map(open_encoder, parts))).join([packs[part]["features"] for part in parts])
            packs["+".join(parts)] = {**packs[parts[0]], "features": joined}
        lines += [line for encoder, pack in packs.items() for line in measured(name, encoder, pack)]
        for line in (line for line in lines if line["set"] == name):
            print(json.dumps(line), flush=True)
    if options.keep:
        options.keep.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
