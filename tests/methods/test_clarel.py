"""Clarel: its loss pair by pair, what a step reads, its text sides, and labels from examples."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.zero_shot import evaluate_zero_shot
from labelwise.fitting.zero_shot import fit_pairs, fit_zero_shot, plan_runs
from labelwise.images.dataset import Dataset
from labelwise.methods import Clarel, Encoder
from labelwise.methods.clarel.method import ClarelModel
from labelwise.methods.clarel.sentences import TrainableSentenceReader, TrainableVectorReader
from labelwise.methods.shared.linear import array
from labelwise.support.errors import DataError, UsageError
from labelwise.train.batches import Batch
from labelwise.train.method import Run
from labelwise.train.stages import Stage
from labelwise.train.tensors import BatchRng
from labelwise.train.train_data import TrainData
from tests.changed import bind_model, model_of
from tests.conftest import blobs
from tests.described import DIAGONAL, PAIRS, by_text, by_vector
from tests.once import once
from tests.pixels_of import px

RUN = Run(device="cpu")
SMALL = Clarel(epochs=25, code_size=24, dropout=0.0)
WORDS = replace(SMALL, epochs=3, reader="words", filters=(8,), hidden=8)
READERS = {"vectors": SMALL, "words": WORDS}
every_reader = pytest.mark.parametrize("reader", READERS)


def built(method: Clarel, data: Dataset) -> tuple[ClarelModel, TrainData, Stage]:
    """An untrained model, its data, and the stage that would train it."""
    final = plan_runs(data, method, 0).final
    torch.manual_seed(0)
    model = method.build(final.spec)
    stage = next(method.stages(model, final))
    return model, final, stage


def batch_of(data: TrainData, n: int = 10, seed: int = 0) -> Batch:
    rows = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(1))[:n]
    part = data.train.select(rows)
    return Batch(images=px(part), targets=torch.as_tensor(part.targets), rows=rows, rng=BatchRng.from_seed(seed, n))


@once
def fitted(reader: str) -> Classifier:
    return fit_zero_shot(by_text(own=reader == "words", unseen=DIAGONAL), READERS[reader], RUN)


def accuracy(classifier: Classifier, data: Dataset) -> float:
    test = data.split("test")
    return float((classifier.scores(px(test)).best == torch.as_tensor(test.targets)).double().mean())


def slow_terms(images: Tensor, read: Tensor, right: list[list[bool]], sharpness: float) -> tuple[float, float]:
    """Minus the log probability of the right texts of each image, and of the right images of each text."""
    away = [[sharpness * math.dist(x, y) for y in read.tolist()] for x in images.tolist()]
    n, text, image = len(away), 0.0, 0.0
    for i in range(n):
        row, column = [math.exp(-d) for d in away[i]], [math.exp(-away[j][i]) for j in range(n)]
        text -= math.log(sum(p for j, p in enumerate(row) if right[i][j]) / sum(row)) / n
        image -= math.log(sum(p for j, p in enumerate(column) if right[j][i]) / sum(column)) / n
    return text, image


def slow_choice(head: torch.nn.Linear, embeddings: Tensor, targets: Tensor) -> float:
    rows = head(embeddings).tolist()
    shares = [math.exp(row[t]) / sum(map(math.exp, row)) for row, t in zip(rows, targets.tolist(), strict=True)]
    return -sum(math.log(share) for share in shares) / len(shares)


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("share", "kappa", "sharpness"), [(0.5, 0.5, 4.0), (0.2, 0.3, 1.0), (1.0, 0.8, 2.0)])
def test_the_loss_equals_a_loop(own: bool, share: float, kappa: float, sharpness: float) -> None:
    method = replace(SMALL, share=share, class_weight=kappa, sharpness=sharpness, drawn=None, label_texts=0.0)
    model, data, stage = built(method, by_text(own=own))
    batch = batch_of(data, 24)
    found = {name: float(term.detach()) for name, term in stage.loss(batch).items()}
    with torch.no_grad():
        images, texts = model.encode_images(batch.images), model.reader.read(data)
        read = texts.encode(batch, None, 0.0)
        given = batch.targets.tolist()
        right = [[i == j or (not own and a == b) for j, b in enumerate(given)] for i, a in enumerate(given)]
        text, image = slow_terms(images, read, right, sharpness)
        assert found == pytest.approx(
            {
                "text retrieval": (1 - kappa) * share * text,
                "image retrieval": (1 - kappa) * (1 - share) * image,
                "image choice": kappa / 2 * slow_choice(model.image_head, images, batch.targets),
                "text choice": kappa / 2 * slow_choice(model.text_head, read, batch.targets),
            },
            rel=1e-4,
        )
    assert len(set(given)) < len(given), "some images of the batch should share a label"


@pytest.mark.parametrize("kappa", [0.0, 0.5, 1.0])
def test_what_the_class_weight_trains(kappa: float) -> None:
    method = replace(SMALL, class_weight=kappa)
    model, data, stage = built(method, by_text(own=True))
    terms = stage.loss(batch_of(data))
    torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
    for head in (model.image_head, model.text_head):
        moved = head.weight.grad is not None and bool(head.weight.grad.any())
        assert moved == (kappa > 0)
    assert model.project.weight.grad is not None
    assert bool(model.project.weight.grad.any())
    assert (float(terms["text retrieval"].detach()) > 0) == (kappa < 1)
    assert method.uses_targets == (kappa > 0)


def test_images_with_sentences_and_no_label_are_enough() -> None:
    """Sixteen labels, none of them shown: chance is 1/16."""
    method, data = replace(SMALL, class_weight=0.0), by_text(own=True, targets=False)
    found = fit_zero_shot(data, method, RUN)
    assert accuracy(found, data) > 0.7
    assert found.unseen == set(PAIRS)
    assert found.calibration.seen_penalty == 0
    held = found.origin.summary["calibration"]["images"]
    assert held + found.origin.summary["training"]["images"] == len(data.split("train"))
    assert found.origin.train_digests is not None
    assert len(found.origin.train_digests) == len(data.split("train"))


def test_without_labels_and_without_sentences_nothing_is_trained() -> None:
    method = replace(SMALL, class_weight=0.0)
    with pytest.raises(DataError, match=r'images of "by text" have no label.*every training image needs sentences'):
        fit_pairs(by_text(targets=False), method, RUN)
    silent = by_vector()
    with pytest.raises(DataError, match="so does every label"):
        fit_pairs(silent, method, RUN)
    with pytest.raises(DataError, match="at least two labels"):
        fit_zero_shot(by_text(own=True, targets=False), SMALL, RUN)


@every_reader
def test_saved_and_loaded_it_scores_the_same(reader: str, tmp_path: Path) -> None:
    found, test = fitted(reader), by_text().split("test")
    lw.save(found, tmp_path / "clarel.lw")
    loaded = lw.load(tmp_path / "clarel.lw")
    assert np.array_equal(loaded.scores(test.images).log_odds, found.scores(test.images).log_odds)
    again = bind_model(model_of(loaded), found.labels)
    torch.testing.assert_close(again.label_embeddings, found.label_embeddings)
    assert isinstance(model_of(loaded), ClarelModel)
    assert isinstance(model_of(loaded).reader, TrainableSentenceReader if reader == "words" else TrainableVectorReader)
    assert loaded.origin.method == found.origin.method
    assert loaded.unseen == set(DIAGONAL)


def test_training_reads_words() -> None:
    """A few epochs of a tiny text network make trained labels better than chance (1/16)."""
    data = by_text(own=True)
    found = fit_zero_shot(data, replace(WORDS, epochs=12), RUN)
    assert accuracy(found, data) > 0.4


def test_unseen_pairs_of_known_words_are_found() -> None:
    data = by_text(unseen=DIAGONAL)
    result = evaluate_zero_shot(Evaluation.of(fitted("vectors"), data.split("test"), data.labels))
    assert result.zero_shot > 0.8
    assert result.harmonic > 0.5


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("name", ["green circle", "blue star"])
def test_a_label_from_examples_wins_its_own_images(name: str, count: int) -> None:
    """It takes most of its images and few of the others, however many examples it was taught from."""
    taken = by_text().split("train")
    examples = px(taken)[torch.as_tensor(taken.targets) == PAIRS.index(name)][:count]
    taught = lw.teach(fitted("vectors").remove(name), name, examples=examples)
    test = by_text(per_label=40).split("test")
    called = [taught.labels.names[i] == name for i in taught.scores(px(test)).best.tolist()]
    own = [PAIRS[target] == name for target in test.targets.tolist()]
    assert sum(a and b for a, b in zip(called, own, strict=True)) > 0.4 * sum(own)
    assert sum(a and not b for a, b in zip(called, own, strict=True)) < 0.05 * (len(own) - sum(own))


def test_a_label_from_examples_lies_as_far_from_images_as_one_from_texts() -> None:
    model, data = model_of(fitted("vectors")), by_text(per_label=60)
    assert isinstance(model, ClarelModel)
    train, test = data.split("train"), data.split("test")
    with torch.no_grad():
        embeddings, trained = model.encode_images(px(test)), model.encode_labels(model.spec.labels)
        learnt = torch.from_numpy(
            model.export_head().labels_from_examples(array(model.encode_images(px(train))), np.asarray(train.targets))
        )
        known = {name: row for row, name in enumerate(model.spec.labels.names)}
        rows = [i for i, t in enumerate(test.targets.tolist()) if PAIRS[t] in known]
        texts = torch.stack([trained[known[PAIRS[torch.as_tensor(test.targets)[i]]]] for i in rows])
        by_texts = (embeddings[rows] - texts).norm(dim=1).mean()
        by_examples = (embeddings - learnt[torch.as_tensor(test.targets)]).norm(dim=1).mean()
        means = torch.stack(
            [model.encode_images(px(train)[torch.as_tensor(train.targets) == i]).mean(0) for i in range(len(PAIRS))]
        )
        by_means = (embeddings - means[torch.as_tensor(test.targets)]).norm(dim=1).mean()
    assert float(by_examples / by_texts) == pytest.approx(1, abs=0.15)
    assert float(by_means / by_texts) < 0.8, "images as they are would be nearer than texts"


@pytest.mark.parametrize("end_to_end", [False, True])
def test_the_encoder_of_pictures_is_trained_first_or_with_the_rest(end_to_end: bool) -> None:
    method = replace(SMALL, end_to_end=end_to_end, encoder=Encoder(backbone="convnet", width=4), encoder_epochs=7)
    data = plan_runs(blobs(), method, 0).final
    model = method.build(data.spec)
    stages = list(method.stages(model, data))
    names, epochs = ["clarel"] if end_to_end else ["clarel encoder", "clarel"], [25] if end_to_end else [7, 25]
    assert ([stage.name for stage in stages], [stage.epochs for stage in stages]) == (names, epochs)
    encoder = {id(p) for p in model.encoder.parameters()}
    trained = [bool(encoder & {id(p) for p in stage.parameters}) for stage in stages]
    assert trained == ([True] if end_to_end else [True, False])
    assert {id(p) for p in (*model.project.parameters(), *model.reader.parameters())} <= {
        id(p) for p in stages[-1].parameters
    }


def test_pictures_without_labels_are_trained_end_to_end() -> None:
    data = blobs(per_label=18)
    train = data.split("train")
    texts = tuple(data.labels.texts[t] for t in train.targets.tolist()) if data.labels.texts else ()
    hidden = replace(train, targets=torch.full_like(torch.as_tensor(train.targets), -1), texts=texts)
    method = replace(SMALL, epochs=1, class_weight=0.0, encoder=Encoder(backbone="convnet", width=4))
    unlabelled = replace(data, splits={"train": hidden})
    with pytest.raises(UsageError, match="set end_to_end=true"):
        fit_zero_shot(unlabelled, method, RUN)
    found = fit_zero_shot(unlabelled, replace(method, end_to_end=True), RUN)
    assert found.unseen == set(data.labels.names)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"share": -0.1}, '"share" must be from 0 to 1; given -0.1'),
        ({"class_weight": 1.1}, '"class_weight" must be from 0 to 1; given 1.1'),
        ({"label_texts": 2.0}, '"label_texts" must be from 0 to 1; given 2.0'),
        ({"dropout": 1.0}, '"dropout" must be from 0 to below 1; given 1.0'),
        ({"dropout": -0.1}, '"dropout" must be from 0 to below 1'),
        ({"sharpness": 0.0}, '"sharpness" must be above 0'),
        ({"power": 0.0}, '"power" must be above 0 and at most 1'),
        ({"power": 1.1}, '"power" must be above 0 and at most 1; given 1.1'),
        ({"drawn": 0}, '"drawn" must be at least 1; given 0'),
        ({"epochs": 0}, 'Setting "epochs" must be at least 1; given 0'),
    ],
)
def test_wrong_settings(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Clarel(**wrong)  # type: ignore[arg-type]
