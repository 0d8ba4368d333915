"""Publish a classifier on a model hub: its folder, a model card, and optionally an ONNX file."""

import tempfile
from pathlib import Path

from labelwise.core.classifier import Classifier
from labelwise.core.export import export
from labelwise.core.hub import Published, check_repository, push_folder
from labelwise.core.store import save
from labelwise.reporting.model_card import CARD, CardWords, model_card
from labelwise.support.writable import write_atomically

MODEL = "model.onnx"  # the exported classifier


def publish(
    classifier: Classifier,
    repository: str,
    words: CardWords | None = None,
    *,
    private: bool = False,
    onnx: bool = False,
    token: str | None = None,
) -> Published:
    """Send a classifier to the repository ``user/name`` of the hub.

    Args:
        classifier: what to send.
        repository: where to; it is made if it is missing.
        words: licence, use and data, for the card.
        private: make a new repository private.
        onnx: also send ``model.onnx``, see ``export``.
        token: of the hub; None is the one of ``hf auth login`` or the variable ``HF_TOKEN``.
    """
    repository = check_repository(repository)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "classifier"
        save(classifier, folder)
        write_atomically(folder / CARD, model_card(classifier, repository, words).encode())
        if onnx:
            export(classifier, folder / MODEL)
        message = f"Classifier of {len(classifier.labels)} labels"
        return push_folder(folder, repository, private=private, token=token, message=message)
