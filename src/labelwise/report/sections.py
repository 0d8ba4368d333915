"""The sections of a report on one classifier, each as HTML; None where one does not apply."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from labelwise.metrics import Reliability
from labelwise.pages import percent, table
from labelwise.report.case import Case
from labelwise.report.cautions import interval
from labelwise.report.examples import example_cards, example_rows, is_picture
from labelwise.report.findings import Findings, UnknownFigures
from labelwise.report.maps import NAMED, matrix
from labelwise.report.svg import Axis, Limit, Series, draw, range_of

CONFUSED = 15  # pairs that are listed
BARS = 30
SHARE = Axis(label="", form="percent", ticks=(0, 0.25, 0.5, 0.75, 1))
DET_TICKS = (0.001, 0.01, 0.05, 0.1, 0.2, 0.5)


class Section(NamedTuple):
    """A part of the page: the name that links go to, its title (HTML), and what is in it (HTML)."""

    name: str
    title: str
    inside: str

    @property
    def html(self) -> str:
        """The section as it stands on the page."""
        return f'<section id="{self.name}"><h2>{self.title}</h2>\n{self.inside}\n</section>'


def plot(svg: str, caption: str) -> str:
    """Return a plot with its caption, which is HTML."""
    return f'<figure class="chart">{svg}<figcaption>{caption}</figcaption></figure>'


def cards(case: Case, found: Findings) -> str:
    """Return the few figures that matter most."""
    n, speed = len(case), case.speed
    low, high = interval(found.accuracy, n)
    sure = f"95 % interval {100 * low:.1f} to {percent(high)}"
    shown: list[tuple[str, str, str]] = []
    if found.closed:
        shown.append(("accuracy", percent(found.closed.accuracy), sure))
        shown.append(("accuracy, mean of labels", percent(found.closed.class_accuracy), f"{len(case.names)} labels"))
        shown.append(("calibration error", percent(found.closed.ece), _before(found, "ece")))
        shown.append(("not called unknown", percent(found.closed.kept), "of these images, all of known labels"))
    if found.several:
        shown.append(("mean average precision", percent(found.several.mean_average_precision), "needs no threshold"))
        shown.append(("micro F1", percent(found.several.micro_f1), f"macro F1 {percent(found.several.macro_f1)}"))
        shown.append(("every answer right", percent(found.several.exact), sure))
        shown.append(("calibration error", percent(found.several.answer_ece), _before(found, "answer_ece")))
    if found.zero_shot:
        words = f"unseen {percent(found.zero_shot.unseen)}, seen {percent(found.zero_shot.seen)}"
        shown.append(("harmonic mean (H)", percent(found.zero_shot.harmonic), words))
    if found.ordinal:
        off = f"{found.ordinal.median.mean_absolute_error:.2f}"
        shown.append(("levels off", off, f"within one: {percent(found.ordinal.median.within_one)}"))
    if found.unknown.result:
        shown.append(("strange pictures told", percent(found.unknown.result.auroc), "AUROC; 50 % is guessing"))
    pace = f"{speed.images_per_second:,.0f}".replace(",", "\u202f")
    shown.append(("images per second", pace, f"{speed.device}, {speed.batch} at a time"))
    inside = "".join(f"<div><dt>{key}</dt><dd>{value}</dd><dd>{more}</dd></div>" for key, value, more in shown)
    return f'<dl class="cards">{inside}</dl>'


def _before(found: Findings, kind: str) -> str:
    return f"{percent(found.calibration.errors_before[kind])} before calibration"


def examples(case: Case, found: Findings, most: int) -> Section:
    """Return what the classifier is best and worst at."""
    best, worst = example_rows(case, found, most)
    parts = []
    if worst:
        title = "Most wrong" if case.tested.multilabel else "Wrong, and most sure of it"
        parts.append(f"<h3>{title}</h3>{example_cards(case, found, worst)}")
    if best:
        parts.append(f"<h3>Right, and most sure of it</h3>{example_cards(case, found, best)}")
    words = "Heat maps show what in the picture speaks for a label; the brighter, the more. "
    if not is_picture(case.images):
        words = "There are no pictures to show, only features: images go by their names. "
    words += "" if worst else "No answer is wrong."
    return Section("examples", "Best and worst", f'<p class="soft">{words}</p>{"".join(parts)}')


def confusion(case: Case, found: Findings) -> Section | None:
    """Return the matrix of which labels are taken for which, and the most frequent confusions."""
    if found.confusion is None:
        return None
    names = case.names if found.ordinal is None else found.ordinal.levels
    order = [case.classifier.labels.index(name) for name in names]
    counts = found.confusion[order][:, order]
    totals = counts.sum(1).tolist()
    wrong = counts.clone().fill_diagonal_(0)
    values, places = wrong.flatten().sort(descending=True, stable=True)
    k, rows = len(names), []
    for value, at in zip(values[:CONFUSED].tolist(), places[:CONFUSED].tolist(), strict=True):
        if value:
            row, column = divmod(at, k)
            rows.append([escape(names[row]), escape(names[column]), f"{value}\u00a0of\u00a0{totals[row]}"])
    kinds = int((wrong > 0).sum())
    words = (
        "Rows are true labels, columns what was said; blue is right, orange wrong, deeper is a larger share of the row."
    )
    words += " Labels are numbered as in the table of labels below." if k > NAMED else ""
    listed = "<p>No label is taken for another.</p>"
    if rows:
        more = f" ({len(rows)} of {kinds} kinds)" if kinds > len(rows) else ""
        head = ("true", "said", "images")
        listed = f"<h3>Most frequent confusions{more}</h3>{table(head, rows, 'names2')}"
    shown = f"<figure>{matrix(counts, names)}<figcaption>{words}</figcaption></figure>"
    return Section("confusion", "What is taken for what", f'<div class="beside large">{shown}<div>{listed}</div></div>')


def each_label(case: Case, found: Findings) -> Section:
    """Return the table of labels."""
    place = {name: i + 1 for i, name in enumerate(case.names)}
    head: tuple[str, ...]
    if case.tested.multilabel:
        head = ("label", "images", "average precision", "F1", "found", "precision")
        rows = [
            [
                escape(one.label),
                str(one.images),
                *map(percent, (one.average_precision, one.f1, one.accuracy, one.precision)),
            ]
            for one in found.each
        ]
        words = "Found: the share of images of a label that get a yes. Precision: the share of its yes answers that is right."
    else:
        numbered = len(case.names) > NAMED
        head = ("label", "images", "accuracy", "", "precision", "most often taken for", *(["no."] if numbered else []))
        rows = [
            [
                escape(one.label)
                + (' <small class="soft">unseen</small>' if one.label in case.classifier.unseen else ""),
                str(one.images),
                percent(one.accuracy),
                _meter(one.accuracy),
                percent(one.precision),
                "" if one.mistaken is None else f"{escape(one.mistaken[0])} ({one.mistaken[1]})",
                *([str(place[one.label])] if numbered else []),
            ]
            for one in found.each
        ]
        words = "Accuracy: the share of a label's images that are named right. Precision: the share of its answers that is right."
    kind = "sortable labels" + (" several" if case.tested.multilabel else "")
    return Section("labels", "Label by label", f'<p class="soft">{words}</p>{table(head, rows, kind)}')


def _meter(share: float | None) -> str:
    return "" if share is None else f'<span class="meter"><span style="width: {100 * share:.0f}%"></span></span>'


def reliability_series(bins: Reliability, name: str, colour: int) -> Series:
    """Return the full bins of a reliability diagram; a dot is larger where there are more answers."""
    full = bins.count > 0
    points = list(zip(bins.confidence[full].tolist(), bins.accuracy[full].tolist(), strict=True))
    counts = bins.count[full].tolist()
    total = max(sum(counts), 1)
    said = [f"{c} answers, said {percent(x)}, right {percent(y)}" for (x, y), c in zip(points, counts, strict=True)]
    sizes = [2.5 + 7 * (c / total) ** 0.5 for c in counts]
    return Series(points=points, name=name, colour=colour, kind="both", sizes=sizes, titles=said)


def reliability_plot(series: Sequence[Series], said: str, true: str) -> str:
    """Return a reliability diagram."""
    ideal = Series(points=[(0, 0), (1, 1)], name="as it should be", colour=5, dashed=True)
    x, y = (Axis(label=label, form="percent", ticks=SHARE.ticks) for label in (said, true))
    return draw([ideal, *series], x, y, title="Reliability: how often answers of each probability are right")


def calibration(case: Case, found: Findings) -> Section:
    """Return whether probabilities can be believed."""
    figures = found.calibration
    kind = "answer_ece" if case.tested.multilabel else "ece"
    series = [
        reliability_series(bins, f"{when} calibration: ECE {percent(errors[kind])}", colour)
        for when, bins, errors, colour in (
            ("before", figures.before, figures.errors_before, 1),
            ("after", figures.after, figures.errors_after, 0),
        )
    ]
    said, true = (
        ("probability of a yes", "share of yes")
        if case.tested.multilabel
        else ("probability of the answer", "answers right")
    )
    rows = [
        [words, percent(figures.errors_before[key]), percent(figures.errors_after[key])]
        for key, words in (("ece", "of the answered label"), ("answer_ece", "of yes and no to every label"))
        if key in figures.errors_after
    ]
    listed = table(("calibration error (ECE)", "before", "after"), rows)
    words = (
        "Of the answers that were said to be 80 % probable, 80 % should be right. The error is the mean distance from that, over "
        "15 bins; a larger dot holds more answers."
    )
    shown = plot(reliability_plot(series, said, true), "Probability said, and how often it was right.")
    return Section("calibration", "Can the probabilities be believed?", _beside(shown, f"<p>{words}</p>{listed}"))


def _beside(chart: str, text: str) -> str:
    return f'<div class="beside">{chart}<div>{text}</div></div>'


def unknown(found: Findings) -> Section:
    """Return the histogram of outlier scores with the limit."""
    figures = found.unknown
    every = figures.known.tolist() + ([] if figures.strange is None else figures.strange.tolist())
    ordered = sorted(every)
    low, high = ordered[0], ordered[min(len(ordered) - 1, int(0.995 * len(ordered)))]
    low, high = range_of([low, high] + ([] if figures.limit is None else [figures.limit]))
    step = (high - low) / BARS
    series = []
    kinds = (("test images of known labels", figures.known, 0), ("strange pictures", figures.strange, 1))
    for name, scores, colour in kinds:
        if scores is None:
            continue
        counts = scores.clamp(low, high).double().histc(BARS, low, high) / len(scores)
        points = [(low + i * step, share) for i, share in enumerate(counts.tolist())] + [(high, 0.0)]
        series.append(Series(points=points, name=f"{name} ({len(scores)})", colour=colour, kind="steps"))
    top = max(y for one in series for _, y in one.points)
    limits = [] if figures.limit is None else [Limit(value=figures.limit, name="unknown →")]
    x, y = (
        Axis(label="outlier score", low=low, high=high),
        Axis(label="share of images", high=top * 1.12, form="percent"),
    )
    svg = draw(series, x, y, title="Histogram of outlier scores with the threshold", limits=limits)
    rows = _unknown_rows(figures)
    words = "A picture past the threshold is called unknown. The score grows where no label is probable or a picture looks unfamiliar."
    if figures.strange is None:
        words += " To see what strange pictures get, give some: <code>--unknown FOLDER</code>."
    if figures.limit is None:
        words += " This classifier has no threshold."
    text = f"<p>{words}</p>{table((), rows) if rows else ''}"
    return Section(
        "unknown",
        "When does it say “unknown”?",
        _beside(plot(svg, "Outlier scores; those beyond the last bar are in it."), text),
    )


def _unknown_rows(figures: UnknownFigures) -> list[list[str]]:
    rows = [] if figures.limit is None else [["threshold", f"{figures.limit:.3f}"]]
    if figures.limit is not None:
        rows.append(["known images called unknown", percent(float((figures.known > figures.limit).double().mean()))])
    if figures.result is not None:
        rows.append(["strange pictures called unknown", percent(figures.result.flagged)])
        rows.append(["AUROC (50 % is guessing)", percent(figures.result.auroc)])
        rows.append(["strange ones that pass where 95 % of known do", percent(figures.result.fpr95)])
    return rows


def zero_shot(found: Findings) -> Section | None:
    """Return the curve of seen over unseen accuracy."""
    result = found.zero_shot
    if result is None:
        return None
    curve = list(zip(result.curve.unseen.tolist(), result.curve.seen.tolist(), strict=True))
    series = [
        Series(points=curve, name=f"every gap, area {result.area:.3f}", colour=0),
        Series(
            points=[(result.unseen_without_gap, result.seen_without_gap)],
            name="no gap",
            colour=1,
            kind="dots",
            sizes=[5],
        ),
        Series(
            points=[(result.unseen, result.seen)], name=f"chosen gap {result.gap:.3g}", colour=2, kind="dots", sizes=[5]
        ),
    ]
    axes = (Axis(label=f"accuracy on {kind} labels", form="percent", ticks=SHARE.ticks) for kind in ("unseen", "seen"))
    svg = draw(series, *axes, title="Accuracy on seen labels over accuracy on unseen labels")
    rows = [
        ["unseen labels alone", percent(result.zero_shot), "", ""],
        ["all labels, chosen gap", *map(percent, (result.unseen, result.seen, result.harmonic))],
        [
            "all labels, no gap",
            *map(percent, (result.unseen_without_gap, result.seen_without_gap, result.harmonic_without_gap)),
        ],
    ]
    head = ("may be answered", "unseen", "seen", "harmonic")
    words = (
        f"{result.unseen_labels} labels are known from a description alone, {result.seen_labels} had training images. A gap holds the "
        "latter back; it was chosen without any test image. Accuracies are averaged over labels."
    )
    return Section(
        "zero-shot",
        "Seen and unseen labels",
        _beside(plot(svg, "Every gap there is."), f"<p>{words}</p>{table(head, rows)}"),
    )
