"""Files that could not be read, and why, in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from labelwise.support.errors import DataError, listing


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A file that could not be read, and why, in words."""

    file: str
    reason: str


def skipped_lines(skipped: Sequence[Skipped], named: int = 3, most: int = 10) -> list[str]:
    """Return a line for each reason, with some of its files, and one that counts all where not each file is named."""
    reasons: dict[str, list[str]] = {}
    for one in skipped:
        reasons.setdefault(one.reason, []).append(one.file)
    lines = [f"{listing(files, named)}: {reason}" for reason, files in list(reasons.items())[:most]]
    return lines if len(reasons) <= most else [*lines, f"{len(skipped)} files in all."]


def skipped_rows(names: Sequence[str], faults: Mapping[int, str]) -> tuple[Skipped, ...]:
    """Return the files of rows that could not be read, in their order; ``faults`` says why."""
    return tuple(Skipped(file=names[row], reason=reason) for row, reason in sorted(faults.items()))


def check_read(skipped: Sequence[Skipped], count: int, *, strict: bool) -> None:
    """Raise an error where images could not be read and all should be, or where none of ``count`` could."""
    if skipped and (strict or len(skipped) == count):
        some = " ".join(f"{each.file}: {each.reason}" for each in skipped[:3])
        more = f" And {len(skipped) - 3} more." if len(skipped) > 3 else ""
        raise DataError(f"{len(skipped)} of {count} images cannot be read. {some}{more}")
