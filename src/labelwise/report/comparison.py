"""Several classifiers on the same test images, side by side."""

from collections.abc import Sequence
from html import escape
from typing import Any

import torch

from labelwise.data.sheets import thumbnail
from labelwise.evaluate.paired import PairedResult, compare_answers
from labelwise.pages import percent, picture, table
from labelwise.report.case import Case
from labelwise.report.examples import SIDE, is_picture, said, truth
from labelwise.report.figures import to_json
from labelwise.report.findings import Findings
from labelwise.report.more_sections import det_plot, det_series
from labelwise.report.sections import Section, plot, reliability_plot, reliability_series

Both = tuple[Case, Findings]


def paired_results(both: Sequence[Both], seed: int) -> list[PairedResult]:
    """Return how each classifier after the first differs from the first."""
    first = both[0][1].right
    return [compare_answers(first, found.right, seed=seed) for _, found in both[1:]]


def paired_figures(both: Sequence[Both], results: Sequence[PairedResult]) -> list[dict[str, Any]]:
    """Return the same as JSON can hold it."""
    return [
        {"model": case.name, "against": both[0][0].name, **to_json(result)}
        for (case, _), result in zip(both[1:], results, strict=True)
    ]


def compare(both: Sequence[Both], results: Sequence[PairedResult], most: int) -> Section:
    """Return the section that compares: figures, significance, curves over each other, and where answers differ."""
    several = both[0][0].tested.multilabel
    head = ("figure", *(escape(case.name) for case, _ in both))
    parts = [table(head, _figure_rows(both), "figures"), _significance(both, results)]
    kind = "answer_ece" if several else "ece"
    bins = [
        reliability_series(
            found.calibration.after, f"{case.name}: ECE {percent(found.calibration.errors_after[kind])}", i
        )
        for i, (case, found) in enumerate(both)
    ]
    axes = ("probability of a yes", "share of yes") if several else ("probability of the answer", "answers right")
    charts = [plot(reliability_plot(bins, *axes), "Reliability, after calibration.")]
    curves = [
        one
        for i, (case, found) in enumerate(both)
        if found.det is not None and found.verification is not None
        for one in det_series(found.det, f"{case.name}: ", i, found.verification.eer)
    ]
    if curves:
        charts.append(plot(det_plot(curves), "Same or different: both errors at every threshold (DET)."))
    parts.append(f'<div class="charts">{"".join(charts)}</div>')
    parts.append(_disagreements(both, most))
    parts.append(f'<p class="soft">What follows is about {escape(both[0][0].name)} alone.</p>')
    return Section("compare", "Side by side", "".join(parts))


def _figure_rows(both: Sequence[Both]) -> list[list[str]]:
    def row(name: str, values: Sequence[float | None]) -> list[list[str]]:
        return [] if all(value is None for value in values) else [[name, *map(percent, values)]]

    found = [one for _, one in both]
    closed, many = [one.closed for one in found], [one.several for one in found]
    rows = [["method", *(escape(str(case.method or "—")) for case, _ in both)]]
    rows += row("accuracy", [None if one is None else one.accuracy for one in closed])
    rows += row("accuracy, mean of labels", [None if one is None else one.class_accuracy for one in closed])
    rows += row("mean average precision", [None if one is None else one.mean_average_precision for one in many])
    rows += row("micro F1", [None if one is None else one.micro_f1 for one in many])
    rows += row("every answer right", [None if one is None else one.exact for one in many])
    rows += row("calibration error (ECE)", [one.calibration.errors_after.get("ece") for one in found])
    rows += row("ECE of yes and no", [one.calibration.errors_after["answer_ece"] for one in found])
    rows += row(
        "strange pictures told (AUROC)", [None if (r := one.unknown.result) is None else r.auroc for one in found]
    )
    rows += row(
        "harmonic mean of seen, unseen", [None if (z := one.zero_shot) is None else z.harmonic for one in found]
    )
    rows += row("within one level", [None if (o := one.ordinal) is None else o.median.within_one for one in found])
    rows += row("pairs: equal error rate", [None if (v := one.verification) is None else v.eer for one in found])
    rows += row("retrieval: R@1", [None if (q := one.retrieval) is None else q.recall.get(1) for one in found])
    pace = [f"{case.speed.images_per_second:,.0f}".replace(",", "\u202f") for case, _ in both]
    return [*rows, ["images per second", *pace]]


def _significance(both: Sequence[Both], results: Sequence[PairedResult]) -> str:
    first = both[0][0]
    rows = []
    for (case, _), result in zip(both[1:], results, strict=True):
        verdict = "no clear difference"
        if result.p < 0.05:
            verdict = f"{escape(case.name if result.difference > 0 else first.name)} is better"
        rows.append(
            [
                f"{escape(case.name)} against {escape(first.name)}",
                f"{100 * result.difference:+.1f}",
                f"{100 * result.low:+.1f} to {100 * result.high:+.1f}",
                f"{result.only_second} : {result.only_first}",
                "&lt; 0.001" if result.p < 0.001 else f"{result.p:.3f}",
                verdict,
            ]
        )
    head = ("right answers", "difference, points", "95 % interval", "only one right", "p (McNemar)", "")
    words = (
        "The interval comes from drawing the test images again (bootstrap); p is how probable so uneven a division of the images that "
        "only one got right is if neither is better. It knows nothing of other seeds of training."
    )
    return f'<h3>Is it more than luck?</h3>{table(head, rows)}<p class="soft">{words}</p>'


def _disagreements(both: Sequence[Both], most: int) -> str:
    """Return images of which some classifiers are right and others not, the surest of them first."""
    right = torch.stack([found.right for _, found in both])
    sure = torch.stack([found.sure for _, found in both]).double()
    mixed = right.any(0) & ~right.all(0)
    if not bool(mixed.any()):
        return "<h3>Where they disagree</h3><p>Each image is answered right by all of them, or by none.</p>"
    gap = torch.where(mixed, sure.mean(0), -1.0)
    rows = [row for row in gap.argsort(descending=True, stable=True).tolist() if mixed[row]][: 2 * most]
    items = []
    for row in rows:
        case = both[0][0]
        shown = ""
        if is_picture(case.images):
            shown = f"<figure>{picture(thumbnail(case.images[row].cpu()[:3], SIDE), case.file(row), 'JPEG')}</figure>"
        answers = "".join(
            f'<dt class="{"good" if found.right[row] else "bad"}">{escape(one.name)}</dt>'
            f"<dd>{escape(said(one, found, row))}</dd>"
            for one, found in both
        )
        true = f'true: {escape(truth(case, row))}<span class="file">{escape(case.file(row))}</span>'
        items.append(f'<li>{shown}<div class="said"><dl>{answers}</dl>{true}</div></li>')
    words = f"{int(mixed.sum())} of {right.shape[1]} images are answered right by some and wrong by others."
    return f'<h3>Where they disagree</h3><p>{words}</p><ul class="examples few">{"".join(items)}</ul>'
