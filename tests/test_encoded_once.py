"""An image passes through the network once, whatever is asked about it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import labelwise as lw
from labelwise.cli import imagine as imagine_verb
from labelwise.core.arrays import Array
from labelwise.core.classifier import Classifier
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.episodes import EpisodeSettings, evaluate_episodes
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.evaluation.ordinal import evaluate_ordinal
from labelwise.evaluation.outliers import evaluate_outliers
from labelwise.evaluation.protocols import measure_verification
from labelwise.evaluation.retrieval import evaluate_retrieval
from labelwise.evaluation.verification import evaluate_verification
from labelwise.evaluation.zero_shot import evaluate_zero_shot
from labelwise.tasks.calibrate import calibrate
from labelwise.tasks.classify import classify
from labelwise.tasks.gallery import make_gallery
from labelwise.tasks.outliers import outliers
from labelwise.tasks.verify import fit_verifier
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from labelwise_papers.analyses.probe import probe_embeddings
from tests.changed import known_by_description
from tests.cli.folders import write_tall
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.generating import generating
from tests.pixels_of import px
from tests.tasks.test_several import trained as several

DATA = blobs()
TEST = DATA.split("test")
IMAGES = TEST.images[:7]


@contextmanager
def counted(classifier: Classifier) -> Iterator[list[int]]:
    """Yield how many images each call of the encoder, and each question about its maps, was given while inside."""
    kind, calls = type(classifier.encoder), list[int]()

    def counting(real: Callable[[Any, Array], Array]) -> Callable[[Any, Array], Array]:
        def count(encoder: Any, images: Array) -> Array:
            calls.append(len(images))
            return real(encoder, images)

        return count

    with pytest.MonkeyPatch.context() as patch:
        for name in ("__call__", "maps"):
            if hasattr(kind, name):
                patch.setattr(kind, name, counting(getattr(kind, name)))
        yield calls


TASKS: dict[str, Callable[[Classifier], object]] = {
    "classify": lambda c: lw.classify(c, IMAGES),
    "ask": lambda c: lw.ask(c, IMAGES, "blob 2"),
    "outliers": lambda c: lw.outliers(c, IMAGES),
    "rank": lambda c: lw.rank(c, IMAGES, order=DATA.labels.names),
    "calibrate": lambda c: lw.calibrate(c, IMAGES, torch.as_tensor(TEST.targets)[:7]),
    "fit_verification": lambda c: lw.fit_verification(c, TEST.select(range(7))),
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_each_picture_of_a_task_is_encoded_once(task: str, method: str) -> None:
    with counted(trained(method)) as calls:
        TASKS[task](trained(method))
    assert sum(calls) == 7


def test_many_pictures_are_encoded_once_in_batches() -> None:
    with counted(trained("softmax")) as calls:
        lw.classify(trained("softmax"), px(TEST).repeat(4, 1, 1, 1))
    assert sum(calls) == len(TEST), "the same image has the same features"


def test_a_heat_map_takes_one_pass_more() -> None:
    for label in (None, "blob 1"):
        with counted(trained("softmax")) as calls:
            lw.explain(trained("softmax"), IMAGES[:1], label)
        assert sum(calls) == 2, "scores, and then the maps that they are pooled from"


@pytest.mark.parametrize("method", ["indicator", "prototype", "clarel"])
def test_five_examples_of_a_label_are_encoded_once(method: str) -> None:
    with counted(trained(method)) as calls:
        taught = lw.teach(trained(method), "new", examples=IMAGES[:5])
    assert sum(calls) == 5
    assert taught.familiarity.memory is not None
    assert taught.origin.train_digests is not None


def test_a_description_encodes_no_image() -> None:
    with counted(trained("eszsl")) as calls:
        lw.teach(trained("eszsl"), "new", vector=[1.0, 1.0, 1.0])
    assert calls == []


def test_pairs_and_queries_are_encoded_once_each() -> None:
    classifier = trained("prototype")
    gallery = make_gallery(classifier, TEST.images, [str(i) for i in range(len(TEST))])
    with counted(classifier) as calls:
        lw.verify(classifier, IMAGES[:3], IMAGES[3:6])
    assert sum(calls) == 6
    with counted(classifier) as calls:
        lw.retrieve(classifier, IMAGES, gallery)
    assert sum(calls) == 7 + len(gallery.probe), "and what tells whether the gallery is of this model"


def test_imagine_encodes_its_gallery_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gallery = write_tall(tmp_path / "tall.npz").split("test")
    classifier = generating(DATA.labels, (3, 12, 8), frozenset({"blob 3"}))
    monkeypatch.setattr(imagine_verb, "open_model", lambda *_: classifier)
    with counted(classifier) as calls:
        imagine_verb.imagine(Path("model"), str(tmp_path / "tall.npz"), split="test", out_folder=tmp_path / "out")
    assert sum(calls) == len(gallery)


def test_what_is_asked_of_one_matrix_encodes_nothing_more() -> None:
    classifier = trained("softmax")
    with counted(classifier) as calls:
        scores = classifier.scores(TEST.images)
        classify(scores)
        outliers(scores)
        calibrate(scores, torch.as_tensor(TEST.targets))
        fit_verifier(scores, torch.as_tensor(TEST.targets))
        classify(scores.of(classifier.remove("blob 0"))[:5])
    assert sum(calls) == len(TEST)


PROTOCOLS: dict[str, Callable[[Evaluation], object]] = {
    "closed": evaluate_closed,
    "answers": yes_rates,
    "answer calibration": answer_calibration,
    "ordinal": lambda evaluation: evaluate_ordinal(evaluation, order=DATA.labels.names),
    "outliers": lambda evaluation: evaluate_outliers(evaluation.scores, evaluation.scores),
    "retrieval": evaluate_retrieval,
    "verification": evaluate_verification,
    "pairs of some": lambda evaluation: measure_verification(evaluation, most=20),
    "episodes": lambda evaluation: evaluate_episodes(evaluation, EpisodeSettings(ways=3, shots=1, queries=2, count=3)),
    "probe": lambda evaluation: probe_embeddings(evaluation, evaluation),
    "zero shot": lambda evaluation: evaluate_zero_shot(
        replace(evaluation, scores=evaluation.scores.of(known_by_description(evaluation.classifier, "blob 1")))
    ),
}


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_all_protocols_share_one_pass(method: str) -> None:
    """Also where some test images have no label, and what is measured is a part of them."""
    part = replace(TEST, targets=torch.where(torch.arange(len(TEST)) < 5, -1, torch.as_tensor(TEST.targets)))
    with counted(trained(method)) as calls:
        evaluation = Evaluation.of(trained(method), part, DATA.labels)
        for protocol in PROTOCOLS.values():
            protocol(evaluation)
    assert sum(calls) == len(TEST)


def test_protocols_of_several_labels_share_one_pass() -> None:
    data, classifier = squares(), several()
    with counted(classifier) as calls:
        evaluation = Evaluation.of(classifier, data.split("test"), data.labels)
        for protocol in (evaluate_multilabel, yes_rates, answer_calibration):
            protocol(evaluation)
    assert sum(calls) == len(data.split("test"))
