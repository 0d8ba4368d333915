"""The reader, the protocols and the file locations of each benchmark."""

import os
from collections.abc import Callable
from pathlib import Path

from labelwise.images.sources.paths import is_hidden, is_image
from labelwise_papers.benchmarks import binary_layouts as binary
from labelwise_papers.benchmarks import folder_layouts as folders
from labelwise_papers.benchmarks import listed_layouts as listed
from labelwise_papers.benchmarks import protocols
from labelwise_papers.benchmarks.entries import Entry
from labelwise_papers.benchmarks.protocols import Protocol
from labelwise_papers.benchmarks.records import Records
from labelwise_papers.benchmarks.windows import wide

Reader = Callable[[Path], Records]
_DEPTH = 3  # archives put their files into a folder of their own, or two

# The readers of the official layouts in a folder, by a file or folder that shows that one is there.
LAYOUTS: dict[str, dict[str, Reader]] = {
    "cifar10": {"data_batch_1.bin": binary.read_cifar10_binary, "data_batch_1": binary.read_cifar10_python},
    "cifar100": {"train.bin": binary.read_cifar100_binary, "meta": binary.read_cifar100_python},
    "stl10": {"train_X.bin": binary.read_stl10},
    "pets": {"annotations/trainval.txt": listed.read_pets},
    "cub200": {"train_test_split.txt": listed.read_cub200},
    "cars196": {"cars_annos.mat": listed.read_cars, "devkit/cars_train_annos.mat": listed.read_cars_devkit},
    "bmw10": {"bmw10_annos.mat": listed.read_bmw10},
    "flowers102": {"setid.mat": listed.read_flowers102},
    "pacs": {"art_painting": folders.read_pacs},
    "mnist": dict.fromkeys(("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"), binary.read_mnist),
    "fashion-mnist": dict.fromkeys(("train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"), binary.read_mnist),
    "tinyimagenet": {"wnids.txt": folders.read_tinyimagenet},
    "lsun": {"*": folders.read_lsun},
    "omniglot": dict.fromkeys(("images_background", "images_background.zip"), folders.read_omniglot),
    "miniimagenet": {"train.csv": listed.read_miniimagenet},
    "utkface": {"*": folders.read_utkface},
    "adience": {"fold_0_data.txt": folders.read_adience},
}

AUDIO_MARKERS = {"voxceleb1": "wav", "audiomnist": "data/01"}

# Where a benchmark is not here, its only protocol is ``standard``.
PROTOCOLS: dict[str, dict[str, Protocol]] = {
    "cifar100": {"standard": protocols.standard, "few_shot": protocols.few_shot},
    "cifar100-20": {"standard": protocols.second_labels},
    "stl10": {"standard": protocols.labelled, "unlabelled": protocols.standard},
    "pets": {"standard": protocols.standard, "species": protocols.second_labels},
    "cub200": {
        "standard": protocols.standard,
        "retrieval": protocols.retrieval,
        "retrieval_trial": protocols.retrieval_trial,
    },
    "cub20": {
        "standard": protocols.first_labels(20),
        "squashed": protocols.squashed(protocols.first_labels(20)),
        "wide": wide(protocols.first_labels(20)),
    },
    "cars196": {"standard": protocols.standard, "retrieval": protocols.retrieval},
    "cars-bmw": {"standard": protocols.labels_starting_with("BMW ")},
    "pacs": {"standard": protocols.standard} | {name: protocols.leave_out(name) for name in folders.PACS_DOMAINS},
    "utkface": {"standard": protocols.standard, "years": protocols.second_labels},
    "adience": {f"fold{i}": protocols.hold_out_fold(f"fold{i}") for i in range(5)},
}


def data_root(root: str | Path | None = None) -> Path:
    """Return the folder of all benchmarks: as given, else ``LABELWISE_DATA``, else in the user's cache."""
    folder = root or os.environ.get("LABELWISE_DATA")
    return Path(folder).expanduser() if folder else Path.home() / ".cache" / "labelwise" / "data"


def find_marker(folder: Path, marker: str) -> Path | None:
    """Return the folder that holds a marker: this one or one below it; ``*`` is any image."""
    level = [folder] if folder.is_dir() else []
    for _ in range(_DEPTH):
        for home in level:
            if (marker == "*" and any(is_image(each.name) for each in _listed(home))) or (
                marker != "*" and (home / marker).exists()
            ):
                return folder if marker == "*" else home
        level = [each for home in level for each in _listed(home) if each.is_dir()]
    return None


def find_layout(entry: Entry, root: Path) -> tuple[Reader, Path] | None:
    """Return the reader of the official layout of a benchmark of images that is in the root, and its folder."""
    for marker, reader in LAYOUTS.get(entry.folder, {}).items():
        home = find_marker(root / entry.folder, marker)
        if home is not None:
            return reader, home
    return None


def find_official(entry: Entry, root: Path) -> Path | None:
    """Return the folder of the official layout of any benchmark, where it is in the root."""
    if entry.what == "features":
        home = find_marker(root / entry.folder, f"{entry.name.upper()}/res101.mat")
        return None if home is None else home / entry.name.upper()
    if entry.what == "audio":
        return find_marker(root / entry.folder, AUDIO_MARKERS[entry.name])
    layout = find_layout(entry, root)
    return None if layout is None else layout[1]


def find_packs(entry: Entry, root: Path) -> Path | None:
    """Return the first packed file of a benchmark where all that it needs are in the root."""
    files = [root / name for name in entry.packs]
    return files[0] if files and all(file.exists() for file in files) else None


def _listed(home: Path) -> list[Path]:
    """Return what people see in a folder, sorted; nothing where it cannot be listed."""
    try:
        return sorted(each for each in home.iterdir() if not is_hidden(each.name))
    except OSError:
        return []
