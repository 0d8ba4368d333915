"""The taxonomy that biodiversity data name: the species of a row, and the groups that hold each label."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from labelwise.images.describe.knowledge_files import RANKS
from labelwise.images.describe.labels import normal_name, unfit_name

Path = tuple[str, ...]
_BINOMIAL = re.compile(r"([^\W\d_]\S*) ([^\W\d_]{2}[\w-]*)(?: .*)?")


def ranks_of(row: Mapping[str, Any], spelling: str = "{}") -> Path:
    """Return the group of a row at each rank, the nearest first; blank where it names none, and without blank ends."""
    names = (row.get(spelling.format(rank)) for rank in RANKS)
    cells = [normal_name(name) if isinstance(name, str) else "" for name in names]
    return tuple("" if not cell or unfit_name(cell) else cell for cell in cells)


def binomial(name: str) -> str:
    """Return the species in a scientific name, without subspecies and authors; any other name unchanged.

    >>> binomial("Passer domesticus balearoibericus"), binomial("Passer domesticus (Linnaeus, 1758)"), binomial("Passer Brisson")
    ('Passer domesticus', 'Passer domesticus', 'Passer Brisson')
    """
    match = _BINOMIAL.fullmatch(name)
    return f"{match[1]} {match[2]}" if match and match[1][0].isupper() and match[2].islower() else name


def lineages(ranked: Mapping[str, Path]) -> dict[str, Path]:
    """Return the parents of each label as a tree, from its groups by rank; groups that hold all labels are left out.

    A rank that is blank for some labels of a group is that of the others. Groups of one name in different places get the name of
    what holds them.

    >>> lineages({"a": ("Oenanthe", "Apiaceae"), "b": ("Oenanthe", "Muscicapidae"), "c": ("Erithacus", "Muscicapidae")})["b"]
    ('Oenanthe (Muscicapidae)', 'Muscicapidae')
    """
    paths: dict[str, Path] = dict.fromkeys(ranked, ())
    above: dict[str, Path] = {}  # what holds each group
    for rank in reversed(range(max(map(len, ranked.values()), default=0))):
        groups: dict[str, list[str]] = {}
        for label, names in ranked.items():
            if rank < len(names) and names[rank] and names[rank] not in (label, *paths[label]):
                groups.setdefault(names[rank], []).append(label)
        for name, labels in groups.items():
            homes = {paths[label] for label in labels}
            longest = max(homes, key=len)
            alike = name not in above and name not in ranked and all(_is_within(home, longest) for home in homes)
            for label in labels:
                home = longest if alike else paths[label]
                title = name if alike or not home else f"{name} ({home[0]})"
                if title not in ranked and not unfit_name(title) and above.setdefault(title, home) == home:
                    paths[label] = (title, *home)
    while all(paths.values()) and len({path[-1] for path in paths.values()}) == 1:
        paths = {label: path[:-1] for label, path in paths.items()}
    return paths


def _is_within(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether a path is a longer one with some steps left out."""
    steps = iter(whole)
    return all(step in steps for step in part)
