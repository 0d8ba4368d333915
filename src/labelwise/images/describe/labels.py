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
RESERVED = ("unknown", "none", "unsure")  # answers that are not labels
PIECES = ("vectors", "texts", "order", "shares", "similarity", "parents")  # optional descriptions of labels
FILLERS = "\u115f\u1160\u2800\u3164\uffa0"  # invisible characters


def normal_name(name: str) -> str:
    """Normalise a name: composed characters (NFC), no surrounding spaces."""
    return unicodedata.normalize("NFC", name).strip()


def unfit_name(name: str) -> str | None:
    """Explain why a label cannot have this name, or return None."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return f"the name {name!a} is not valid UTF-8"
    plain = normal_name(name)
    if all(
        character in FILLERS or character.isspace() or unicodedata.category(character) == "Cf" for character in plain
    ):
        return f"the name {name!a} is empty"
    if plain.splitlines() != [plain]:
        return f"the name {name!a} has a line break"
    if any(unicodedata.category(character) == "Cc" for character in plain):
        return f"the name {name!a} has a control character"
    if plain.lower() in RESERVED:
        return f'"{plain}" is reserved for answers'
    return f"the name {name[:20]!a}... is longer than {LONGEST_NAME} characters" if len(plain) > LONGEST_NAME else None


def label_name(name: str) -> str:
    """Return the stored form of a label name, or raise an error if the name is not allowed."""
    if unfit := unfit_name(name):
        raise UsageError(f"This cannot be a label: {unfit}. Give a name in one line of UTF-8.")
    return normal_name(name)


def find_name(name: str, names: Sequence[str]) -> str | None:
    """Find a name: exactly, or the only one that differs in case; None if there is none."""
    name = normal_name(name)
    return _only_candidate(name, [candidate for candidate in names if candidate.casefold() == name.casefold()])


def _only_candidate(name: str, candidates: Sequence[str]) -> str | None:
    return name if name in candidates else candidates[0] if len(candidates) == 1 else None


def tree_of(parents: Mapping[str, Sequence[str]]) -> Texts:
    """Return the parents of each label, or raise an error unless they are a tree.

    A label that is its own nearest parent loses that parent, which says nothing.
    """
    paths = {name: tuple(map(normal_name, path)) for name, path in parents.items()}
    paths = {name: path[1:] if path[:1] == (name,) else path for name, path in paths.items()}
    parent_of: dict[str, tuple[str, tuple[str, ...]]] = {}
    for name, path in paths.items():
        if len(path) > MOST_PARENTS:
            raise UsageError(f'"{name}" has {len(path)} parents; at most {MOST_PARENTS} fit.')
        for place, parent in enumerate(path):
            if reason := unfit_name(parent):
                raise UsageError(f'"{name}" cannot have this parent: {reason}. Give a name in one line of UTF-8.')
            if parent == name or parent in path[:place]:
                raise UsageError(f'"{parent}" is its own parent, through "{name}". Remove one of the two.')
            ancestors = tuple(path[place + 1 :])
            first_child, known_ancestors = parent_of.setdefault(parent, (name, ancestors))
            if parent in paths:
                first_child, known_ancestors = parent, paths[parent]
            if known_ancestors != ancestors:
                raise UsageError(
                    f'"{parent}" is in {listing(known_ancestors) or "nothing"} for "{first_child}" and in {listing(ancestors) or "nothing"} for "{name}". '
                    "Give each parent the same parents everywhere."
                )
    return tuple(paths.values())


@dataclass(frozen=True, eq=False, kw_only=True)
class Labels:
    """Unique label names with optional descriptions."""

    names: tuple[str, ...]  # k unique, non-empty names
    vectors: Any = None  # attributes or word vectors [k, a]
    texts: tuple[tuple[str, ...], ...] | None = None  # sentences that describe each label, k tuples
    order: tuple[int, ...] | None = None  # ranks of ordered labels, k distinct integers
    shares: Any = None  # label frequencies [k], summing to one
    similarity: Any = None  # similarity of labels [k, k], larger is more alike
    parents: Texts | None = None  # parents of each label, from the nearest to the broadest, k tuples

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
        repeated = [name for name, count in Counter(names).items() if count > 1]
        if repeated:
            raise UsageError(f"Label names must be unique; given more than once: {listing(repeated)}.")
        for what in PIECES:
            piece = getattr(self, what)
            if piece is not None and len(piece) != len(names):
                raise UsageError(f"There are {len(names)} labels but {len(piece)} {what}; give one for each label.")
        if self.vectors is not None and (self.vectors.ndim != 2 or not np.isfinite(self.vectors).all()):
            raise UsageError(
                f"Label vectors must be finite numbers of shape [labels, size]; given {list(self.vectors.shape)}."
            )
        similarity, square = self.similarity, [len(names), len(names)]
        if similarity is not None and (list(similarity.shape) != square or not np.isfinite(similarity).all()):
            raise UsageError(f"Label similarity must be finite numbers {square}; given {list(similarity.shape)}.")
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
        pieces = [piece for piece in PIECES if getattr(self, piece) is not None]
        return f"<{len(self)} labels: {listing(self.names, 6)}{'; with ' + listing(pieces) if pieces else ''}>"

    @property
    def groups(self) -> tuple[str, ...]:
        """The unique parents that are not labels themselves."""
        every = dict.fromkeys(parent for path in self.parents or () for parent in path)
        return tuple(name for name in every if name not in self._positions)

    def index(self, name: str) -> int:
        """Return the position of a label in any spelling, or raise an error that lists the labels."""
        name = name if name in self._positions else normal_name(name)
        if name not in self._positions:
            raise UsageError(
                f'No label "{name}".{suggest(name, self.names)} Known labels: {listing(self.names)}. Add it with "teach".'
            )
        return self._positions[name]

    def find(self, name: str) -> str | None:
        """Find a label: exactly, or the only one that differs in case; None if there is none."""
        name = normal_name(name)
        return _only_candidate(name, self._names_by_form.get(name.casefold(), ()))

    def meant(self, name: str) -> str:
        """Find a label, or raise an error with a suggestion."""
        return self.find(name) or self.names[self.index(name)]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.names)}

    @cached_property
    def _names_by_form(self) -> dict[str, list[str]]:
        """The names by case-folded form."""
        by_form: dict[str, list[str]] = {}
        for name in self.names:
            by_form.setdefault(name.casefold(), []).append(name)
        return by_form

    def select(self, names: Sequence[str]) -> "Labels":
        """Select labels, in this order, with their descriptions."""
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
        """Join two sets of labels; pieces that both have are kept, except order, shares, similarity."""
        if shared := set(other.names).intersection(self.names):
            raise UsageError(f"Label names must be unique; given more than once: {listing(sorted(shared))}.")
        texts = None if self.texts is None or other.texts is None else self.texts + other.texts
        vectors = None
        if self.vectors is not None and other.vectors is not None:
            vectors = append_rows(self.vectors, other.vectors)
        parents = None
        if self.parents is not None or other.parents is not None:
            parents = (self.parents or ((),) * len(self)) + (other.parents or ((),) * len(other))
        return Labels._complete(self.names + other.names, vectors, texts, parents)

    def without(self, place: int) -> "Labels":
        """Return the labels without the one at a position; order, shares and similarity are dropped."""
        vectors = None if self.vectors is None else drop_rows(self.vectors, place, place + 1)
        texts = None if self.texts is None else self.texts[:place] + self.texts[place + 1 :]
        parents = None if self.parents is None else self.parents[:place] + self.parents[place + 1 :]
        return Labels._complete(self.names[:place] + self.names[place + 1 :], vectors, texts, parents)

    def with_parent(self, name: str, parent: str) -> "Labels":
        """Return the labels with a parent for one of them; the parent's own parents come from the other labels.

        >>> birds = Labels(names=("house sparrow", "robin"), parents=(("Passer", "Passeridae"), ("Erithacus",)))
        >>> birds.add("tree sparrow").with_parent("tree sparrow", "Passer").parents[2]
        ('Passer', 'Passeridae')
        """
        place, parent = self.index(name), label_name(parent)
        parents = list(self.parents or ((),) * len(self))
        ancestors = next((path[path.index(parent) :] for path in parents if parent in path), (parent,))
        parents[place] = ancestors if parent not in self.names else (parent, *parents[self.index(parent)])
        return replace(self, parents=tuple(parents))

    @classmethod
    def _complete(
        cls, names: tuple[str, ...], vectors: Array | None, texts: Texts | None, parents: Texts | None
    ) -> "Labels":
        """Return labels without checking them again, which is slow for ten thousand labels."""
        labels = object.__new__(cls)
        pieces = dict.fromkeys(field.name for field in fields(cls))
        vars(labels).update({**pieces, "names": names, "vectors": vectors, "texts": texts, "parents": parents})
        return labels

    def check_new(self, name: str) -> None:
        """Raise an error if a label has this name."""
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
