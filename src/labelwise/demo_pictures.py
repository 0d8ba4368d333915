"""The pictures of the tour; matplotlib is imported only here and when one is drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from labelwise.api import classify, explain
from labelwise.classifier import Classifier, bind
from labelwise.data import Dataset
from labelwise.evaluate.tested import align_targets
from labelwise.metrics import reliability

INK = "#222222"


def _figure(rows: int, columns: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _show(axes: Any, image: Tensor, title: str = "", colour: str = INK) -> None:
    axes.imshow(image.expand(3, -1, -1).permute(1, 2, 0).cpu().numpy(), interpolation="lanczos")
    axes.set_title(title, fontsize=8, color=colour)
    axes.axis("off")


def draw_finches(data: Dataset, path: Path) -> None:
    """Write one picture of every species with its name."""
    train, k = data.split("train"), len(data.labels)
    figure, axes = _figure(-(-k // 6), 6, (9, 1.7 * -(-k // 6)))
    for place in axes.flat:
        place.axis("off")
    for label, place in zip(range(k), axes.flat, strict=False):
        rows = (train.targets == label).nonzero()[:, 0]
        _show(place, train.images[int(rows[0])], data.labels.names[label])
    figure.savefig(path, dpi=120)


def draw_answers(classifier: Classifier, data: Dataset, name: str, path: Path) -> None:
    """Write heat maps of four pictures, each for its own label and for the label that comes second."""
    test = data.split("test")
    labels = [name, *[other for other in data.labels.names if other != name][:3]]
    figure, axes = _figure(len(labels), 3, (6.3, 2.2 * len(labels)))
    for row, label in zip(axes, labels, strict=True):
        image = test.images[int((test.targets == data.labels.index(label)).nonzero()[0])]
        second = next(x for x, _ in classify(classifier, image, top=2)[0].top if x != label)
        _show(row[0], image, f"a {label}")
        for place, asked in ((row[1], label), (row[2], second)):
            found = explain(classifier, image, asked)
            place.imshow(found.overlay())
            place.set_title(f"{asked}?\n{100 * found.probability:.1f} % yes", fontsize=8, color=INK)
            place.axis("off")
    figure.savefig(path, dpi=120)


def draw_reliability(models: Sequence[tuple[str, Classifier]], data: Dataset, path: Path) -> None:
    """Write how often a label is right against how probable it was said to be, before and after calibration."""
    test = data.split("test")
    figure, axes = _figure(1, len(models), (4.2 * len(models), 4))
    for place, (name, classifier) in zip(axes[0], models, strict=True):
        raw, scores = bind(classifier.model, classifier.labels), classifier.scores(test.images)
        targets = align_targets(classifier, test, data.labels)
        for who, colour, words in ((raw, "#c9711a", "before"), (classifier, "#1a6fc9", "after calibration")):
            best, chosen = scores.of(who).probabilities.max(1)
            bins = reliability(best, chosen.cpu() == targets, 10)
            full = bins.count > 0
            place.plot(bins.confidence[full], bins.accuracy[full], "-", color=colour, linewidth=1, alpha=0.6)
            sizes = 8 + 300 * bins.count[full] / bins.count.sum()
            place.scatter(bins.confidence[full], bins.accuracy[full], sizes, color=colour, label=words, alpha=0.8)
        place.plot([0, 1], [0, 1], color="#999999", linewidth=1, linestyle="--")
        place.set(
            title=f"{name} (larger dot: more pictures)",
            xlabel="probability",
            ylabel="share right",
            xlim=(0, 1.02),
            ylim=(0, 1.02),
        )
        place.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def draw_taught(classifier: Classifier, images: Tensor, name: str, path: Path) -> None:
    """Write pictures of the taught label with what the classifier calls them."""
    columns = 8
    figure, axes = _figure(-(-len(images) // columns), columns, (12, 1.9 * -(-len(images) // columns)))
    for place in axes.flat:
        place.axis("off")
    for image, found, place in zip(images, classify(classifier, images, top=1), axes.flat, strict=False):
        _show(place, image, found.label, "#1a7f37" if found.label == name else "#b3261e")
    figure.savefig(path, dpi=120)
