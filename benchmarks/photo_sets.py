"""The sets of ``docs/results/photos.md``: tables of the originals with their official splits, and features packed small.

    python benchmarks/photo_sets.py tables ORIGINALS PACKS FOLDER
    python benchmarks/photo_sets.py pack FEATURES PACKED [--train 60] [--test 5000]

ORIGINALS holds the full-size pictures: ``flowers`` (Flowers-102, ``image_01234.jpg`` in a folder for each label), ``pets`` (Oxford-IIIT Pets: ``images``,
``annotations``), ``cub`` (CUB-200-2011: ``train``, ``test``), ``pacs`` (PACS: a folder for each domain). PACKS holds ``flowers102_64.npz``, which says which picture is in
which official split. FOLDER gets a table for each; ``labelwise data encode TABLE --data-root ORIGINALS --out FEATURES`` makes features.

``pack`` draws pictures of each label for training and others to test, and keeps half precision: features that fit through a narrow door. PACKED ends in ``.npz``, or in
``.npy`` where the folder above that of each label is its domain, which then stands in a table beside it.
"""

import argparse
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from photos import drawn, pool_of

import labelwise as lw

Row = tuple[Path, str, str]  # picture, label, split (PACS: domain)


def flowers(originals: Path, packs: Path) -> Iterator[Row]:
    pack = np.load(packs / "flowers102_64.npz")
    splits = dict(zip(pack["image_id"].tolist(), pack["split"].tolist(), strict=True))
    for file in sorted(originals.glob("flowers/**/image_*.jpg")):
        yield file, file.parent.name, ("train", "val", "test")[splits[int(file.stem[-5:])]]


def pets(originals: Path, _: Path) -> Iterator[Row]:
    for part, split in (("trainval", "train"), ("test", "test")):
        for line in (originals / f"pets/annotations/{part}.txt").read_text().splitlines():
            name = line.split()[0]
            yield originals / f"pets/images/{name}.jpg", name.rpartition("_")[0], split


def cub(originals: Path, _: Path) -> Iterator[Row]:
    return ((file, file.parent.name, file.parts[-3]) for file in sorted(originals.glob("cub/*/*/*.jpg")))


def pacs(originals: Path, _: Path) -> Iterator[Row]:
    return ((file, file.parent.name, file.parts[-3]) for file in sorted(originals.glob("pacs/PACS/*/*/*.*")))


def write_table(file: Path, rows: Iterable[Iterable[object]], head: Iterable[str]) -> None:
    with file.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerows([list(head), *rows])


def pack(source: Path, file: Path, train: int, test: int) -> None:
    """Write so many training pictures of each label and so many test pictures in all, in half precision."""
    data = lw.data.features(source)
    pool, rest = drawn(pool_of(data), train, 0), data.split("test")
    rest = rest.select(torch.randperm(len(rest), generator=torch.Generator().manual_seed(0))[:test])
    parts = {"train": pool, "test": rest}
    matrix = torch.cat([part.images for part in parts.values()]).half().numpy()
    targets = torch.cat([part.targets for part in parts.values()])
    splits = [name for name, part in parts.items() for _ in range(len(part))]
    if file.suffix == ".npy":
        np.save(file, matrix)
        names = [data.labels.names[target] for target in targets.tolist()]
        domains = [Path(name).parts[-3] for part in parts.values() for name in part.files]
        write_table(file.with_suffix(".csv"), zip(names, splits, domains, strict=True), ("label", "split", "domain"))
    else:
        classes = np.array(data.labels.names)
        np.savez_compressed(file, features=matrix, labels=targets.numpy(), classes=classes, split=np.array(splits))
    print(f"{file}: {len(pool)} to train on, {len(rest)} to test, {file.stat().st_size / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    tables, packed = verbs.add_parser("tables"), verbs.add_parser("pack")
    for name in ("originals", "packs", "folder"):
        tables.add_argument(name, type=Path)
    for name in ("features", "packed"):
        packed.add_argument(name, type=Path)
    packed.add_argument("--train", type=int, default=60, help="pictures of each label")
    packed.add_argument("--test", type=int, default=5000, help="pictures of all labels")
    options = parser.parse_args()
    if options.verb == "pack":
        pack(options.features, options.packed, options.train, options.test)
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    for make in (flowers, pets, cub, pacs):
        rows = [
            (str(file.relative_to(options.originals)), *about)
            for file, *about in make(options.originals, options.packs)
        ]
        head = ("path", "label", "domain" if make is pacs else "split")
        write_table(options.folder / f"{make.__name__}.csv", rows, head)
        print(f"{make.__name__}: {len(rows)} pictures")


if __name__ == "__main__":
    main()
