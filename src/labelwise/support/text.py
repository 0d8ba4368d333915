"""Text for users: escaping of unsafe names, names of figures, progress bars."""

import json
import math
import re
import sys
from collections.abc import Iterable
from typing import Any, Final, TypeVar

T = TypeVar("T")

# What changes a terminal or the order of letters, or cannot be written as UTF-8: controls (ESC, and CSI as one of them), line
# and paragraph separators, marks and overrides of direction, halves of surrogate pairs.
UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BREAKS = re.compile(f"[\t\n]|{UNSAFE.pattern}")
FORMULA = re.compile(r"'*[=+\-@\t\r]")  # how a cell begins that a spreadsheet computes
QUOTED = re.compile(r"'+[=+\-@\t\r]")
# What some heads can do, in words.
LEARN = "learn a label from example images"
LOCATE = "draw a heat map"
GENERATE = "generate features of a label from its description"
COMPARE = "compare images by a learned similarity"
WHITEN = "compare whitened embeddings"
LONGEST = 60  # letters of a name in an image or in the name of a file


def visible(text: str, *, lines: bool = False) -> str:
    r"""Escape unsafe characters in ASCII; ``lines`` keeps line breaks and tabs.

    A byte of a file's name that is not UTF-8 is spelled as that byte: ``caf\xe9.png``.
    """
    return (UNSAFE if lines else BREAKS).sub(_spell, text)


def _spell(match: re.Match[str]) -> str:
    sign = match[0]
    return f"\\x{ord(sign) - 0xDC00:02x}" if "\udc80" <= sign <= "\udcff" else ascii(sign)[1:-1]


def json_text(document: Any, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Serialize a document as JSON, with null for non-finite numbers."""
    try:
        return json.dumps(document, ensure_ascii=ascii_only, indent=indent, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(document), ensure_ascii=ascii_only, indent=indent, allow_nan=False)


def _finite(document: Any) -> Any:
    """Replace infinities and NaN in a document by None."""
    if isinstance(document, dict):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def as_json(document: Any, indent: int | None = None, *, ascii_only: bool = False) -> str:
    """Serialize a document as JSON that is safe to show: some characters are escaped."""
    text = json_text(document, indent, ascii_only=ascii_only)
    return UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def caption(name: str) -> str:
    """Prepare a name for matplotlib: escape dollar signs, and truncate it to a line."""
    short = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
    return visible(short).replace("$", r"\$")


def to_cell(name: str) -> str:
    """Escape a name for a spreadsheet cell: ``=cmd()`` gets a leading quote. See ``from_cell``."""
    return f"'{name}" if FORMULA.match(name) else name


def from_cell(cell: str) -> str:
    """Undo ``to_cell``."""
    return cell[1:] if QUOTED.match(cell) else cell


def with_bar(parts: Iterable[T], count: int, words: str) -> Iterable[T]:
    """Iterate over parts with a progress bar; a single part has none."""
    if count < 2 or not sys.stderr.isatty():
        return parts
    from rich.console import Console
    from rich.progress import track

    return track(parts, words, count, console=Console(stderr=True), transient=True)


FIGURES: Final[dict[str, str]] = {
    "images": "images measured",
    "accuracy": "right (accuracy)",
    "balanced_accuracy": "right, averaged over labels (balanced accuracy)",
    "baseline": "always answering {label} (baseline)",
    "mean_label_precision": "ranking for each label (mean average precision)",
    "ece": "calibration error of answers (ECE)",
    "answer_ece": "calibration error of yes and no (ECE)",
    "kept": 'not called "unknown" (coverage)',
    "kept_accuracy": 'right where not "unknown" (selective accuracy)',
    "unknown": 'called "unknown"',
    "leaked": "test images seen in training",
    # each label answered yes or no
    "asked": "labels asked about",
    "mean_average_precision": "mean average precision",
    "average_precision": "its images ranked first (average precision)",
    "micro_f1": "F1 over all answers (micro F1)",
    "macro_f1": "F1, mean over labels (macro F1)",
    "exact": "every answer right (exact match)",
    # cross-validation
    "groups": "groups of images that count once",
    "by_fold": "accuracy of each fold",
    # images of none of the labels
    "outlier_score": "outlier score",
    "unknown_auroc": "detection of unknown images (AUROC)",
    "unknown_fpr95": "unknown images taken for known (FPR at 95 % TPR)",
    "unknown_flagged": 'unknown images called "unknown"',
    # labels without training images
    "unseen": "unseen (u)",
    "seen": "seen (s)",
    "harmonic": "both (harmonic mean, H)",
    "area": "seen over unseen accuracy, all gaps (area, AUSUC)",
    # ordered labels
    "mean_absolute_error": "levels off, on average (MAE)",
    "kappa": "agreement with the truth (quadratic kappa)",
    "within_one": "at most one level off",
    "spearman": "images in the right order (Spearman's rho)",
    "covered": "Intervals of levels meant for {wanted} of the images hold the true level in {share} (coverage), with {width:.1f} levels on average.",
    # two images
    "score": "how alike (score)",
    "same": "probability of the same",
    "pair_eer": "pairs judged wrongly (EER)",
    "pair_min_dcf": "cost of errors (minDCF)",
    "pair_auroc": "same label more alike (AUROC)",
    "pair_misses": "the same, called different (misses)",
    "pair_false_accepts": "different, called the same (false accepts)",
    "recall_at": "its label among the {k} most alike (R@{k})",
    "precision_at_r": "its label in the first places (MAP@R)",
}
PIECES: Final[dict[str, str]] = {  # what data hold
    "targets": "labels of images (targets)",
    "pictures": "images",
    "vectors": "attributes of labels (vectors)",
    "texts": "sentences about labels (texts)",
    "order": "an order of labels",
    "shares": "how frequent labels are (shares)",
    "similarity": "how alike labels are (similarity)",
    "parents": "groups that hold labels (parents)",
    "image_texts": "sentences about images (texts)",
    "image_domains": "where images come from (domains)",
    "image_groups": "which images belong together (groups)",
    "descriptions": "descriptions (vectors or texts of every label)",
    "one_label": "images of one label each (here several may be true)",
    "enough": "more images, three of at least two labels, to hold some out",
    "torch": 'torch (pip install "labelwise[train]")',
}
FACTS: Final[dict[str, str]] = {
    "data": "data",
    "images": "training images",
    "validation_images": "validation images",
    "skipped": "unreadable images",
    "seconds": "seconds of training",
    "device": "device",
    "seed": "seed",
    "torch": "PyTorch",
}
