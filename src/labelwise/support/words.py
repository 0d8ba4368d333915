"""What figures are called where people read them: what a person would ask, and the field's term in brackets.

The shell, the report and the page of the service take their words from here. Keys are those of JSON documents; figures of images of
no known label start with ``unknown_``, those of pairs of images with ``pair_``.
"""

from typing import Final

FIGURES: Final[dict[str, str]] = {
    "images": "images measured",
    "accuracy": "right (accuracy)",
    "balanced_accuracy": "right, averaged over labels (balanced accuracy)",
    "baseline": "always answering {label} (baseline)",
    "mean_label_precision": "ranking for each label (mean average precision)",
    "ece": "calibration error of answers (ECE)",
    "answer_ece": "calibration error of yes and no (ECE)",
    "kept": 'not called "unknown" (coverage)',
    "kept_accuracy": 'right among those not "unknown" (selective accuracy)',
    "unknown": 'called "unknown"',
    "leaked": "test images seen in training",
    # each label answered yes or no
    "asked": "labels asked about",
    "mean_average_precision": "true labels ranked first (mean average precision)",
    "average_precision": "its images ranked first (average precision)",
    "micro_f1": "yes where it is true, and only there (micro F1)",
    "macro_f1": "the same, averaged over labels (macro F1)",
    "exact": "every answer right (exact match)",
    # cross-validation
    "groups": "groups of images that count once",
    "by_fold": "right in each part (fold)",
    # images of none of the labels
    "outlier_score": "outlier score",
    "unknown_auroc": "unknown images told from known (AUROC)",
    "unknown_fpr95": "unknown, taken for known (FPR at 95 % TPR)",
    "unknown_flagged": 'unknown images called "unknown"',
    # labels without training images
    "unseen": "unseen (u)",
    "seen": "seen (s)",
    "harmonic": "both (harmonic mean, H)",
    "area": "seen against unseen, at every gap (area, AUSUC)",
    # ordered labels
    "mean_absolute_error": "levels off, on average (MAE)",
    "kappa": "agreement with the truth (quadratic kappa)",
    "within_one": "at most one level off",
    "spearman": "images in the right order (Spearman's rho)",
    "covered": "Ranges of levels that should hold the true one in {wanted} of the images hold it in {share} (coverage), with {width:.1f} levels each.",
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
