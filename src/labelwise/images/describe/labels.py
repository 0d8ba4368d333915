"""Labels: unique names, and knowledge about each."""

import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.rows import append_rows, drop_rows

Array = npt.NDArray[Any]
Texts = tuple[tuple[str, ...], ...]


LONGEST_NAME = 200  # characters
MOST_PARENTS = 20  # of a label
RESERVED = ("unknown", "none", "unsure")  # answers that are no label
PIECES = ("vectors", "texts", "order", "shares", "similarity", "parents")  # what may be known about labels
FILLERS = "\u115f\u1160\u2800\u3164\uffa0"  # letters and signs that show nothing


def normal_name(name: str) -> str:
    """Return a name in the one spelling that labels have: composed characters (NFC), no spaces around it."""
    return unicodedata.normalize("NFC", name).strip()


def unfit_name(name: str) -> str | None:
    """Return in words why a label cannot have this name, or None."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"the name {name!a} is not valid UTF-8"
    plain = normal_name(name)
    if all(one in FILLERS or one.isspace() or unicodedata.category(one) == "Cf" for one in plain):
        return f"the name {name!a} is empty"
    if plain.splitlines() != [plain]:
        return f"the name {name!a} has a line break"
    if any(unicodedata.category(one) == "Cc" for one in plain):
        return f"the name {name!a} has a control character"
    if plain.lower() in RESERVED:
        return f'"{plain}" is reserved for answers'
    return f"the name {name[:20]!a}... is longer than {LONGEST_NAME} characters" if len(plain) > LONGEST_NAME else None


def label_name(name: str) -> str:
    """Return the stored form of a label's name, or raise an error that says why the name is not allowed."""
    if unfit := unfit_name(name):
        raise UsageError(f"This cannot be a label: {unfit}. Give a name in one line of UTF-8.")
    return normal_name(name)


def find_name(name: str, names: Sequence[str]) -> str | None:
    """Return which of some names a person means: the same, or the only one that differs in case alone; None if there is none."""
    name = normal_name(name)
    return _meant(name, [each for each in names if each.casefold() == name.casefold()])


def _meant(name: str, alike: Sequence[str]) -> str | None:
    return name if name in alike else alike[0] if len(alike) == 1 else None


def tree_of(parents: Mapping[str, Sequence[str]]) -> Texts:
    """Return the parents of each label, or raise an error unless they are a tree.

    A label that is its own nearest parent loses that parent, which says nothing.
    """
    paths = {name: tuple(map(normal_name, path)) for name, path in parents.items()}
    paths = {name: path[1:] if path[:1] == (name,) else path for name, path in paths.items()}
    above: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, path in paths.items():
        if len(path) > MOST_PARENTS:
            raise UsageError(f'"{name}" has {len(path)} parents; at most {MOST_PARENTS} fit.')
        for place, parent in enumerate(path):
            if reason := unfit_name(parent):
                raise UsageError(f'"{name}" cannot have this parent: {reason}. Give a name in one line of UTF-8.')
            if parent == name or parent in path[:place]:
                raise UsageError(f'"{parent}" is its own parent, through "{name}". Remove one of the two.')
            rest = tuple(path[place + 1 :])
            other, known = above.setdefault(parent, (name, rest))
            if parent in paths:
                other, known = parent, paths[parent]
            if known != rest:
                raise UsageError(
                    f'"{parent}" is in {listing(known) or "nothing"} for "{other}" and in {listing(rest) or "nothing"} for "{name}". '
                    "Give each parent the same parents everywhere."
                )
    return tuple(paths.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels:
    """Unique label names and what is known about each; every piece but the names is optional."""

    names: tuple[str, ...]  # k unique, non-empty names
    vectors: Any = None  # attributes or word vectors [k, a]
    texts: tuple[tuple[str, ...], ...] | None = None  # sentences that describe each label, k tuples
    order: tuple[int, ...] | None = None  # the rank of each label where labels are ordered, k distinct integers
    shares: Any = None  # how frequent each label is, [k], summing to one
    similarity: Any = None  # how alike two labels are, [k, k], larger is more alike
    parents: Texts | None = None  # the groups that hold each label, from the nearest to the broadest, k tuples

    def __post_init__(self) -> None:
        names = tuple(normal_name(name) if isinstance(name, str) else name for name in self.names)
        object.__setattr__(self, "names", names)
        for what in ("vectors", "shares", "similarity"):
            if getattr(self, what) is not None:
                object.__setattr__(self, what, np.asarray(getattr(self, what)))
        if not names:
            raise UsageError("No label was given; at least one name is needed.")
        blank = [i for i, name in enumerate(names) if not isinstance(name, str) or not name.strip()]
        if blank:
            raise UsageError(f"Label {blank[0]} has no name (given: {names[blank[0]]!r}). Every label needs one.")
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise UsageError(f"Label names must be unique; given more than once: {listing(twice)}.")
        for what in PIECES:
            piece = getattr(self, what)
            if piece is not None and len(piece) != len(names):
                raise UsageError(f"There are {len(names)} labels but {len(piece)} {what}; give one for each label.")
        if self.vectors is not None and (self.vectors.ndim != 2 or not np.isfinite(self.vectors).all()):
            raise UsageError(
                f"Label vectors must be finite numbers of shape [labels, size]; given {list(self.vectors.shape)}."
            )
        alike, square = self.similarity, [len(names), len(names)]
        if alike is not None and (list(alike.shape) != square or not np.isfinite(alike).all()):
            raise UsageError(f"Label similarity must be finite numbers {square}; given {list(alike.shape)}.")
        if self.order is not None and len(set(self.order)) != len(names):
            raise UsageError(f"The order of labels must give each a different rank; given {self.order}.")
        if self.shares is not None and (bool((self.shares < 0).any()) or abs(float(self.shares.sum()) - 1) > 1e-2):
            raise UsageError(
                f"Class shares must not be negative and must sum to 1; they sum to {float(self.shares.sum()):.4f}."
            )

        if self.parents is not None:
            object.__setattr__(self, "parents", tree_of(dict(zip(names, self.parents, strict=True))))

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        known = [what for what in PIECES if getattr(self, what) is not None]
        return f"<{len(self)} labels: {listing(self.names, 6)}{'; with ' + listing(known) if known else ''}>"

    @property
    def groups(self) -> tuple[str, ...]:
        """The parents that are no labels themselves, each once."""
        every = dict.fromkeys(parent for path in self.parents or () for parent in path)
        return tuple(name for name in every if name not in self._positions)

    def index(self, name: str) -> int:
        """Return the position of a label in any spelling, or raise an error that lists the known ones."""
        name = name if name in self._positions else normal_name(name)
        if name not in self._positions:
            raise UsageError(
                f'No label "{name}".{suggest(name, self.names)} Known labels: {listing(self.names)}. Add it with "teach".'
            )
        return self._positions[name]

    def find(self, name: str) -> str | None:
        """Return the label that a person means by a name: the same, or the only one that differs in case alone; None if there is none."""
        name = normal_name(name)
        return _meant(name, self._alike.get(name.casefold(), ()))

    def meant(self, name: str) -> str:
        """Return the label that a person means, or raise an error that suggests one."""
        return self.find(name) or self.names[self.index(name)]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def _alike(self) -> dict[str, list[str]]:
        """The names by what they are without case."""
        alike: dict[str, list[str]] = {}
        for name in self.names:
            alike.setdefault(name.casefold(), []).append(name)
        return alike

    def select(self, names: Sequence[str]) -> "Labels":
        """Return these labels only, in the order given, with all that is known about them."""
        rows = [self.index(name) for name in names]
        return Labels(
            names=tuple(names),
            vectors=None if self.vectors is None else self.vectors[rows],
            texts=None if self.texts is None else tuple(self.texts[i] for i in rows),
            order=None if self.order is None else tuple(self.order[i] for i in rows),
            shares=None if self.shares is None else self.shares[rows] / self.shares[rows].sum(),
            similarity=None if self.similarity is None else self.similarity[rows][:, rows],
            parents=None if self.parents is None else tuple(self.parents[i] for i in rows),
        )

    def join(self, other: "Labels") -> "Labels":
        """Return these labels and then the others; pieces that both have are kept, except order, shares, similarity."""
        if twice := set(other.names).intersection(self.names):
            raise UsageError(f"Label names must be unique; given more than once: {listing(sorted(twice))}.")
        texts = None if self.texts is None or other.texts is None else self.texts + other.texts
        vectors = None
        if self.vectors is not None and other.vectors is not None:
            vectors = append_rows(self.vectors, other.vectors)
        parents = None
        if self.parents is not None or other.parents is not None:
            parents = (self.parents or ((),) * len(self)) + (other.parents or ((),) * len(other))
        return Labels._whole(self.names + other.names, vectors, texts, parents)

    def without(self, place: int) -> "Labels":
        """Return the labels without the one at a position; order, shares and similarity are dropped."""
        vectors = None if self.vectors is None else drop_rows(self.vectors, place, place + 1)
        texts = None if self.texts is None else self.texts[:place] + self.texts[place + 1 :]
        parents = None if self.parents is None else self.parents[:place] + self.parents[place + 1 :]
        return Labels._whole(self.names[:place] + self.names[place + 1 :], vectors, texts, parents)

    def with_parent(self, name: str, parent: str) -> "Labels":
        """Return the labels with the parent of one of them; what holds that parent is known from the other labels.

        >>> birds = Labels(names=("house sparrow", "robin"), parents=(("Passer", "Passeridae"), ("Erithacus",)))
        >>> birds.add("tree sparrow").with_parent("tree sparrow", "Passer").parents[2]
        ('Passer', 'Passeridae')
        """
        place, parent = self.index(name), label_name(parent)
        known = list(self.parents or ((),) * len(self))
        above = next((path[path.index(parent) :] for path in known if parent in path), (parent,))
        known[place] = above if parent not in self.names else (parent, *known[self.index(parent)])
        return replace(self, parents=tuple(known))

    @classmethod
    def _whole(
        cls, names: tuple[str, ...], vectors: Array | None, texts: Texts | None, parents: Texts | None
    ) -> "Labels":
        """Return labels that were checked before: to check ten thousand again for each that is added would be felt."""
        labels = object.__new__(cls)
        pieces = dict.fromkeys(field.name for field in fields(cls))
        vars(labels).update({**pieces, "names": names, "vectors": vectors, "texts": texts, "parents": parents})
        return labels

    def check_new(self, name: str) -> None:
        """Raise an error where there is already a label of this name."""
        if name in self.names:
            raise UsageError(f'There is already a label "{name}". Remove it first, or choose another name.')

    def add(self, name: str, vector: npt.ArrayLike | None = None, texts: Sequence[str] = ()) -> "Labels":
        """Return the labels with a new one at the end.

        What stays known for every label is kept: a piece that the new label lacks is dropped, and an order or
        shares are dropped because a new label has no place in them.
        """
        self.check_new(name)
        vectors = None if vector is None else np.asarray(vector)[None]
        return self.join(Labels(names=(name,), vectors=vectors, texts=(tuple(texts),) if texts else None))
