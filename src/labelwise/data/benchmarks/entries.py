"""The table of benchmarks: every set that the papers use, by name."""

from labelwise.data.benchmarks.entry import Entry
from labelwise.data.benchmarks.grey_entries import GREY_ENTRIES
from labelwise.data.benchmarks.other_entries import OTHER_ENTRIES
from labelwise.data.benchmarks.picture_entries import PICTURE_ENTRIES
from labelwise.errors import UsageError, listing, suggest

ENTRIES: dict[str, Entry] = {entry.name: entry for entry in (*PICTURE_ENTRIES, *GREY_ENTRIES, *OTHER_ENTRIES)}


def find_entry(name: str) -> Entry:
    """Return the entry of a name, or raise an error that suggests the nearest."""
    if name not in ENTRIES:
        raise UsageError(f'No benchmark "{name}".{suggest(name, ENTRIES)} Benchmarks: {listing(ENTRIES, 40)}.')
    return ENTRIES[name]
