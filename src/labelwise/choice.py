"""Which method? Chosen from what the data says about its labels, with the reason in words."""

from collections.abc import Mapping
from dataclasses import dataclass

from labelwise.data.dataset import Dataset
from labelwise.data.described import describe_labels
from labelwise.errors import DataError, UnsupportedError, listing


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A method, why it was chosen, what else would do, and what would fit better but is not there."""

    method: str
    reason: str
    alternatives: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    def line(self) -> str:
        """Return the choice in one line for the user."""
        other = f" Alternatives: {listing(self.alternatives)}." if self.alternatives else ""
        better = (
            f" For the labels without images: {listing(self.missing)}, not in this version." if self.missing else ""
        )
        return f"Method {self.method}: {self.reason}.{better}{other}"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """What a data set says about its labels.

    Attributes:
        labelled: whether images of two labels or more can be trained on.
        unseen: how many labels have no image in train.
        texts: whether sentences describe every label, its own or those of its images.
        vectors: whether every label has a vector.
        order: whether labels are ordered.
        multilabel: whether several labels may be true of one image.
    """

    labelled: bool
    unseen: int
    texts: bool
    vectors: bool
    order: bool
    multilabel: bool = False


def situation(data: Dataset) -> Situation:
    """Return what is known about the labels of a data set, from its training split."""
    train = data.split("train")
    if train.truths is None:
        present = {target for target in train.targets.tolist() if target >= 0}
    else:
        present = set(train.truths.any(0).nonzero()[:, 0].tolist())
    try:
        labels = describe_labels(data).labels
    except DataError:  # the sentences of images leave some label out
        labels = data.labels
    return Situation(
        labelled=len(present) >= 2,
        unseen=len(labels) - len(present),
        texts=labels.texts is not None,
        vectors=labels.vectors is not None,
        order=labels.order is not None,
        multilabel=data.multilabel,
    )


def choose_method(data: Dataset, known: Mapping[str, object]) -> Choice:
    """Return the method to train on this data.

    Args:
        data: the data set.
        known: the methods there are, by name.
    """
    now = situation(data)
    wanted, reason = _wanted(now)
    there = [name for name in wanted if name in known]
    if there:
        return Choice(method=there[0], reason=reason, alternatives=tuple(there[1:]))
    if now.labelled:
        fallback = [name for name in ("indicator", "softmax", "multilabel") if name in known]
        words = f"the images of {len(data.labels) - now.unseen} labels are labelled"
        return Choice(method=fallback[0], reason=words, alternatives=tuple(fallback[1:]), missing=wanted)
    raise UnsupportedError(
        f'The images of "{data.name}" have no labels ({reason}). That takes the method {listing(wanted)}, which this '
        "version does not have. Label some images of at least two classes."
    )


def _wanted(now: Situation) -> tuple[tuple[str, ...], str]:
    """Return the methods that fit, best first, and why."""
    if not now.labelled:
        return ("zero_label",), "only the order of the labels is known" if now.order else "only label names are known"
    if now.multilabel:
        return ("indicator", "multilabel"), "several labels may be true of one image"
    if now.unseen and (now.texts or now.vectors):
        what = "sentences" if now.texts else "attribute vectors"
        return _readers(now), f"{what} describe the labels without an image in train ({now.unseen})"
    alone = f"; nothing describes the labels without any ({now.unseen})" if now.unseen else ""
    return ("indicator", "prototype", "softmax", "multilabel"), f"every training image has a label{alone}"


def _readers(now: Situation) -> tuple[str, ...]:
    """Return the methods that read the descriptions there are, best first."""
    if not now.texts:
        return ("izf", "eszsl", "clarel")
    return ("clarel", "izf", "eszsl") if now.vectors else ("clarel", "eszsl")
