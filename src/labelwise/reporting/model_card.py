"""The model card of a classifier, from its record: Markdown with YAML metadata, as model hubs show it."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labelwise import __version__
from labelwise.core.classifier import Classifier
from labelwise.reporting.pages import percent
from labelwise.support.text import visible

LISTED = 200  # labels listed on a card
CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class CardWords:
    """Facts that the classifier cannot know."""

    licence: str = ""  # an SPDX name such as apache-2.0 or cc-by-4.0
    use: str = ""  # what it is meant for
    data: str = ""  # origin of the training images


def model_card(classifier: Classifier, repository: str, words: CardWords | None = None) -> str:
    """Return the card of a classifier in the repository ``user/name``."""
    words = words or CardWords()
    name, sections = repository.rpartition("/")[2], _sections(classifier, repository, words)
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections)
    return f"---\n{_metadata(classifier, name, words)}---\n\n# {_plain(name)}\n\n{_opening(classifier)}\n\n{body}\n"


def _metadata(classifier: Classifier, name: str, words: CardWords) -> str:
    """Return the metadata; JSON values are valid YAML."""
    estimate = _estimate(classifier.origin.summary)
    entries: dict[str, Any] = {
        "library_name": "labelwise",
        "pipeline_tag": "image-classification",
        "tags": ["labelwise", "image-classification", "onnx"],
    }
    if words.licence:
        entries["license"] = words.licence
    if estimate:
        metric = {"type": "accuracy", "value": round(estimate["accuracy"], 4), "name": f"accuracy ({estimate['how']})"}
        task = {"type": "image-classification"}
        data = {"name": _data_name(classifier), "type": "private"}
        entries["model-index"] = [{"name": name, "results": [{"task": task, "dataset": data, "metrics": [metric]}]}]
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in entries.items())


def _estimate(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the estimated accuracy on new images, if a person assigned the labels."""
    if summary.get("labels_by"):
        return None
    for key, basis in (("leave_one_out", "leave-one-out"), ("validation", "validation images")):
        if key in summary:
            return {**summary[key], "how": basis}
    return None


def _data_name(classifier: Classifier) -> str:
    return str(classifier.origin.summary.get("training", {}).get("data", "images"))


def _opening(classifier: Classifier) -> str:
    size = " x ".join(map(str, classifier.shape[1:]))
    answers = "every label that fits" if classifier.calibration.multilabel else "one label with its probability"
    unknown = ', or "unknown"' if classifier.familiarity.rule is not None else ""
    images = f"an image ({size} pixels after resizing)" if size else f"{classifier.shape[0]} features of an image"
    return f"A classifier of {len(classifier.labels)} labels. It takes {images} and answers {answers}{unknown}."


def _sections(classifier: Classifier, repository: str, words: CardWords) -> Iterator[tuple[str, str]]:
    yield (
        "How to use it",
        f'```\npip install "labelwise[hub]"\nlabelwise classify hf://{repository} photo.jpg\n```\n\nIn Python:\n\n'
        f'```python\nimport labelwise as lw\n\nlw.load("hf://{repository}").classify("photo.jpg")\n```',
    )
    yield "Intended use", _plain(words.use) or "Not stated. Ask the author before you rely on it."
    yield "Data", _data(classifier, words)
    yield "Figures", _figures(classifier)
    yield "Limits", _limits(classifier)
    yield "Labels", _labels(classifier)
    licence = f"The classifier: {_plain(words.licence)}." if words.licence else "Not stated."
    yield "Licence", f"{licence} Its encoder is {_plain(classifier.encoder.name)}, which has its own licence."


def _data(classifier: Classifier, words: CardWords) -> str:
    training = classifier.origin.summary.get("training", {})
    count = f"{training['images']} images" if "images" in training else "Images"
    lines = [f'{count} of "{_plain(_data_name(classifier))}". {_plain(words.data)}'.strip()]
    method = classifier.origin.method
    if method is not None:
        seed = f", seed {training['seed']}" if "seed" in training else ""
        lines.append(f"Method: {method.name}{seed}, labelwise {__version__}.")
    if classifier.origin.train_digests is not None:
        lines.append("The files hold hashes of the training images, to recognise them in a test, but no image.")
    return "\n\n".join(lines)


def _figures(classifier: Classifier) -> str:
    summary = classifier.origin.summary
    estimate = _estimate(summary)
    if summary.get("labels_by"):
        return "Accuracy is not known, because a program chose the labels."
    if not estimate:
        accuracy = summary.get("training", {}).get("validation_accuracy")
        return (
            "Accuracy was not estimated."
            if accuracy is None
            else f"Accuracy on validation images: {percent(accuracy)}."
        )
    rows = [("accuracy", percent(estimate["accuracy"]), f"{percent(estimate['low'])} to {percent(estimate['high'])}")]
    if baseline := estimate.get("baseline"):
        rows.append((f'always "{_plain(baseline["label"])}"', percent(baseline["accuracy"]), ""))
    calibration = summary.get("calibration", {})
    if "ece_after" in calibration:
        rows.append(("calibration error (ECE)", percent(calibration["ece_after"]), ""))
    table = "\n".join(f"| {name} | {value} | {interval} |" for name, value, interval in rows)
    basis = f"Estimated by {estimate['how']} on {estimate['images']} images, for new images like these."
    return f"{basis}\n\n| figure | value | 95 % interval |\n|---|---|---|\n{table}"


def _limits(classifier: Classifier) -> str:
    lines = [
        "It was measured on images like its training images. Other cameras, places or seasons can lower its accuracy."
    ]
    if classifier.familiarity.rule is not None:
        keep = classifier.origin.summary.get("calibration", {}).get("keep")
        share = f" It was set to accept {percent(keep)} of known images." if keep else ""
        lines.append(f'"Unknown" is a rule of thumb, and some images of other things get a label.{share}')
    else:
        lines.append("It has no rule for unknown images: an image of anything gets one of its labels.")
    confused = (_estimate(classifier.origin.summary) or {}).get("confused") or []
    lines += [
        f'"{_plain(pair["label"])}" is taken for "{_plain(pair["taken_for"])}" ({pair["count"]} times).'
        for pair in confused[:5]
    ]
    if classifier.unseen:
        lines.append(f"{len(classifier.unseen)} labels had no training image, only a description.")
    return "\n".join(f"- {line}" for line in lines)


def _labels(classifier: Classifier) -> str:
    names = classifier.labels.names
    ending = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(_plain, names[:LISTED])) + ending


def _plain(text: str) -> str:
    """Escape a text for Markdown, on one line."""
    return re.sub(r"([\\`*_{}\[\]<>#|!])", r"\\\1", visible(" ".join(str(text).split())))
