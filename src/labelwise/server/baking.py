"""Bake: a saved classifier with everything that a service was taught."""

from pathlib import Path

from labelwise.server.changing import Changing, journal_folder
from labelwise.server.journal import Journal
from labelwise.store import digest_of, load, save


def bake(model: Path, out: Path) -> str:
    """Write the classifier of a model and its journal to a folder; return what was done, in words."""
    changing = Changing(load(model), Journal(journal_folder(model), digest_of(model)))
    served = changing.present()
    save(served.classifier, out)
    state = served.story.state
    return (
        f"{out}: {len(served.classifier.labels)} labels, {len(state.taught)} of them taught; "
        f"{len(state.forgotten)} of the trained ones forgotten."
    )
