"""Zero-shot features whose labels are known by sentences alone: captions of images, or sentences about classes.

Captions are in one file of JSON, from the image (``class folder/file name``) to its sentences; sentences about classes in
another, from the class to its sentences. Vectors of the labels are left out, so that a method reads the sentences.
"""

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType

import numpy as np

from labelwise.images.dataset import Array, Dataset
from labelwise.images.describe.labels import Labels
from labelwise.images.describe.words import find_words, packaged_vectors
from labelwise.images.sources.npz_files import open_npz, read_array
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.files import open_regular, unpack
from labelwise_papers.benchmarks.records import text_lines, tidy
from labelwise_papers.benchmarks.registry import find_marker
from labelwise_papers.benchmarks.xlsa17 import PARTS, ZeroShotData

CAPTIONS_FILE = "cub_captions_reed_55classes.json.gz"
CONCEPT_FILES = MappingProxyType({"cub": "labo_gpt3_concepts_CUB.json.gz", "flo": "labo_gpt3_concepts_flower.json.gz"})
MOST_IMAGES = 100  # whose captions describe one label
Sentences = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Captions:
    """A protocol: whose captions describe a label, and which images of unseen labels are tested."""

    # captions of test images describe labels too; otherwise those of training images describe a seen label, and those
    # of images set aside, a fixed half, an unseen one
    of_tested: bool
    test_set_aside: bool  # the images set aside are tested like the others
    of_images: bool = True  # training images keep their own captions, too

    def __post_init__(self) -> None:
        """Refuse the one combination that would test what describes while it promises not to."""
        if self.test_set_aside and not self.of_tested:
            raise UsageError("Images set aside describe a label; test them only with of_tested=True, which says so.")


CAPTIONS = MappingProxyType(
    {
        "captions": Captions(of_tested=False, test_set_aside=False),
        "captions_paper": Captions(of_tested=True, test_set_aside=True),
        "captions_control": Captions(of_tested=True, test_set_aside=False),
        "captions_of_labels": Captions(of_tested=False, test_set_aside=False, of_images=False),
    }
)


def load_described(features: ZeroShotData, root: Path, protocol: str, seed: int) -> Dataset:
    """Return the data set of a protocol of sentences, ``labo`` or one of ``CAPTIONS``, of features with tidy label names."""
    if protocol == "labo":
        return with_concepts(features.dataset(seed=seed), read_sentences(root / CONCEPT_FILES[features.name]))
    captions = read_sentences(root / CAPTIONS_FILE)
    return captioned(with_cub_files(features, root), captions, CAPTIONS[protocol], seed)


def read_sentences(file: Path) -> Sentences:
    """Return the sentences of each image or class from gzipped JSON; blank ones are dropped."""
    if not file.is_file():
        raise DataError(
            f'"{file}" is missing. It is gzipped JSON that gives each image (class folder/file name), or each class, a '
            "list of sentences."
        )
    try:
        with open_regular(file, None) as raw, gzip.open(raw) as stream:
            sentences = json.loads(unpack(stream, file))
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise DataError(f'"{file}" is not gzipped JSON, or it is damaged ({error}). Copy it again.') from None
    if not isinstance(sentences, dict) or not all(
        isinstance(texts, list) and all(isinstance(text, str) for text in texts) for texts in sentences.values()
    ):
        raise DataError(f'"{file}" must give each image or class a list of sentences. Write it again.')
    return {key: tuple(text.strip() for text in texts if text.strip()) for key, texts in sentences.items()}


def with_concepts(data: Dataset, sentences: Sentences) -> Dataset:
    """Return the data with the sentences about its classes in place of vectors; splits do not change.

    Names are compared by letters and digits alone, in lower case. Sentences without any word that the packaged word
    vectors know, such as a misspelt name alone, are left out.
    """
    vectors = packaged_vectors()
    known = {
        _plain(name): tuple(text for text in texts if find_words(text, vectors.__contains__, phrase=False)[0])
        for name, texts in sentences.items()
    }
    names = data.labels.names
    silent = [name for name in names if not known.get(_plain(name))]
    if silent:
        raise DataError(f'No sentence is about these labels of "{data.name}": {listing(silent)}. Add them to the file.')
    return replace(data, labels=Labels(names=names, texts=tuple(known[_plain(name)] for name in names)))


def with_cub_files(features: ZeroShotData, root: Path) -> ZeroShotData:
    """Return the features with ``class folder/file name`` of each image.

    Features without names are in the order of CUB's ``images.txt``, which the pack of 64x64 images keeps as well.
    """
    files = features.files or _cub_files(root)
    short = tuple("/".join(file.replace("\\", "/").split("/")[-2:]) for file in files)
    labels = [features.labels.names[i] for i in features.targets.tolist()]
    if [tidy(file.partition("/")[0]) for file in short] != labels:
        raise DataError(
            f'The {len(short)} file names of "{features.name}" do not belong to its {len(labels)} features: their folders '
            "are not the labels. Take the features and images.txt of CUB-200-2011."
        )
    return replace(features, files=short)


def captioned(features: ZeroShotData, captions: Sentences, rule: Captions, seed: int) -> Dataset:
    """Return the images that have captions, by their ``files``, with labels described by captions as the rule says.

    Train and val keep the captions of their images unless the rule says otherwise, test has none. The images set aside do not
    depend on the seed.
    """
    features = _select(features, [row for row, file in enumerate(features.files) if captions.get(file)])
    aside = _set_aside(features)
    every = np.arange(len(features.targets))
    described = every if rule.of_tested else np.sort(np.concatenate([features.rows["trainval"], aside]))
    texts = _texts_of_labels(features, described.tolist(), captions)
    if not rule.test_set_aside:
        unseen = features.rows["test_unseen"]
        features = replace(features, rows={**features.rows, "test_unseen": unseen[~np.isin(unseen, aside)]})
    data = features.dataset(seed=seed)
    splits = {
        name: replace(part, texts=tuple(captions[file] for file in part.files if rule.of_images and name != "test"))
        for name, part in data.splits.items()
    }
    return replace(data, labels=Labels(names=features.labels.names, texts=texts), splits=splits)


def _cub_files(root: Path) -> Sequence[str]:
    """Return the image files of CUB in the order of ``images.txt``."""
    home, pack = find_marker(root / "cub200", "images.txt"), root / "cub200_64.npz"
    if home is not None:
        return [line.split(maxsplit=1)[-1].strip() for line in text_lines(home / "images.txt")]
    if pack.is_file():
        with open_npz(pack) as archive:
            return [str(file) for file in read_array(archive, "files")]
    raise DataError(
        f'Captions are found by the file of an image, and these features have no file names. Put "images.txt" of '
        f'CUB-200-2011 into "{root / "cub200"}", or the pack "{pack.name}" into "{root}".'
    )


def _select(features: ZeroShotData, rows: Sequence[int]) -> ZeroShotData:
    """Return these images and their labels only, both counted again."""
    if not rows:
        raise DataError(f'No image of "{features.name}" has a caption. Look whether the captions are of other images.')
    at = np.array(rows)
    classes, targets = np.unique(features.targets[at], return_inverse=True)
    positions = np.full(len(features.targets), -1)
    positions[at] = np.arange(len(rows))
    moved = {part: positions[features.rows[part]] for part in PARTS}
    return ZeroShotData(
        name=features.name,
        features=features.features[at],
        targets=targets,
        labels=features.labels.select([features.labels.names[i] for i in classes.tolist()]),
        rows={part: own[own >= 0] for part, own in moved.items()},
        files=tuple(features.files[row] for row in rows),
    )


def _set_aside(features: ZeroShotData) -> Array:
    """Return half of the images of each unseen label: those whose file names have the smallest hashes."""
    unseen = features.rows["test_unseen"]
    aside: list[int] = []
    for target in np.unique(features.targets[unseen]).tolist():
        rows = unseen[features.targets[unseen] == target].tolist()
        aside += sorted(rows, key=lambda row: sha256(features.files[row].encode()).digest())[: (len(rows) + 1) // 2]
    return np.array(sorted(aside), np.int64)


def _texts_of_labels(features: ZeroShotData, rows: Sequence[int], captions: Sentences) -> tuple[tuple[str, ...], ...]:
    """Return the captions of the first images of each label among these rows."""
    images: list[list[int]] = [[] for _ in features.labels.names]
    for row in rows:
        images[int(features.targets[row])].append(row)
    first = [each[:MOST_IMAGES] for each in images]
    return tuple(tuple(text for row in each for text in captions[features.files[row]]) for each in first)


def _plain(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())
