"""Training where several labels are true of an image, or none, against the loss written out pair by pair."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

import labelwise as lw
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.multilabel import evaluate_multilabel
from labelwise.fitting.training import training_data
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS, Indicator, Multilabel
from labelwise.methods.indicator.method import IndicatorModel
from labelwise.methods.indicator.negatives import sample_wrong_labels
from labelwise.methods.shared.linear import Encoder
from labelwise.support.errors import UsageError
from labelwise.train.batches import Batch
from labelwise.train.model import Spec
from labelwise.train.tensors import BatchRng
from tests.conftest import quick, squares

K = 6
SPEC = Spec(shape=(3, 8, 8), labels=Labels(names=tuple("abcdef")))
ROWS = torch.tensor([7, 0, 3, 11, 5, 8])


def problem(seed: int = 0) -> tuple[Tensor, Batch]:
    """The truths of twelve training images, and a batch of six of them; one has no label, one all but one."""
    made = torch.Generator().manual_seed(seed)
    truths = torch.rand(12, K, generator=made) < 0.4
    truths[3], truths[5] = False, torch.arange(K) != 2
    images = torch.rand(len(ROWS), 3, 8, 8, generator=made)
    batch = Batch(images=images, targets=truths[ROWS], rows=ROWS, rng=BatchRng.from_seed(5, len(ROWS)))
    return truths, batch


def build(method: Indicator) -> IndicatorModel:
    torch.manual_seed(1)
    return method.build(SPEC).train()


def literal(network: IndicatorModel, batch: Batch, truths: Tensor, wrong: list[list[int]]) -> Tensor:
    """For each image a yes to each true label and a no to each of its wrong ones, one pair at a time."""
    embeddings = network.encode_images(batch.images)
    losses = []
    for embedding, true, no in zip(embeddings, truths[batch.rows].tolist(), wrong, strict=True):
        terms = [embedding.sum() * 0]
        for label in range(K):
            psi = network.label_encoder.of_inputs(one_hot(torch.tensor([label]), K).float())[0]
            logit = network.predictor(embedding * psi)[0]
            if true[label]:
                terms.append(-logit.sigmoid().log())
            if label in no:
                terms.append(-(1 - logit.sigmoid()).log())
        losses.append(torch.stack(terms).sum())
    return torch.stack(losses).mean()


@pytest.mark.parametrize("sampling", ["uniform", "hard"])
@pytest.mark.parametrize("negatives", [1, 3, 5, 9])
def test_indicator_loss_and_gradients_equal_the_literal_form(negatives: int, sampling: str) -> None:
    method = Indicator(encoder=Encoder(width=8), negatives=negatives, sampling=sampling)  # type: ignore[arg-type]
    truths, batch = problem()
    ours, theirs = build(method), build(method)
    wrong = [[label for label in range(K) if not true[label]] for true in truths[batch.rows].tolist()]
    if negatives < K - 1:
        with torch.no_grad():
            scores = theirs.score(build(method).encode_images(batch.images), theirs.encode_labels(SPEC.labels))
        logits = scores if sampling == "hard" else None
        uniforms = BatchRng.from_seed(5, len(ROWS)).uniform(K)
        wrong = sample_wrong_labels(uniforms, truths[batch.rows], negatives, logits).tolist()
    loss = torch.stack(list(method.loss_of_several(ours, negatives)(batch).values())).sum()
    reference = literal(theirs, batch, truths, wrong)
    torch.testing.assert_close(loss, reference, rtol=1e-4, atol=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    reference.backward()  # type: ignore[no-untyped-call]
    for (name, a), b in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-5, msg=name)


def test_one_true_label_each_is_the_ordinary_loss() -> None:
    _, batch = problem()
    targets = torch.arange(12) % K
    truths, method = one_hot(targets, K).bool(), Indicator(encoder=Encoder(width=8))
    several = method.loss_of_several(build(method), K - 1)(replace(batch, targets=truths[ROWS]))
    one = method.loss(build(method), K - 1)(replace(batch, targets=targets[ROWS]))
    for term in ("yes", "no"):
        torch.testing.assert_close(several[term], one[term])


@pytest.mark.parametrize("one_true", [False, True])
def test_multilabel_loss_is_a_cross_entropy_of_each_pair(one_true: bool) -> None:
    data = training_data(squares(60))
    if one_true:
        data = replace(data, train=replace(data.train, targets=torch.arange(len(data.train)) % 3))
    method = Multilabel(encoder=Encoder(width=8))
    torch.manual_seed(1)
    model = method.build(data.spec).train()
    stage = next(method.stages(model, data))
    rows = torch.tensor([9, 2, 4])
    images = data.train.images[rows].float() / 255
    batch = Batch(images=images, targets=data.train.targets[rows], rows=rows, rng=BatchRng.from_seed(0, 3))
    found = stage.loss(batch)["answers"]
    truths = one_hot(data.train.targets, 3) if one_true else data.train.targets
    with torch.no_grad():
        p = model.score(model.encode_images(images), model.encode_labels(data.labels)).sigmoid()
    wanted = (
        sum(-(p[i, j] if truths[r, j] else 1 - p[i, j]).log() for i, r in enumerate(rows.tolist()) for j in range(3))
        / 3
    )
    torch.testing.assert_close(found, torch.as_tensor(wanted), rtol=1e-4, atol=1e-5)


def test_other_methods_say_which_can() -> None:
    able = [name for name, kind in METHODS.items() if kind.multilabel]
    assert able == ["indicator", "multilabel"]
    for name in METHODS:
        if name not in able:
            with pytest.raises(
                UsageError, match=f"method {name} takes one label for each. Methods that can: indicator, multi"
            ):
                lw.fit(squares(60), quick(name, 1), lw.Run(device="cpu"))


@pytest.mark.parametrize("method", ["indicator", "multilabel"])
def test_squares_are_learnt(method: str) -> None:
    data = squares()
    classifier = lw.fit(data, quick(method, 40), lw.Run(device="cpu"))
    found = evaluate_multilabel(Evaluation.of(classifier, data.split("test"), data.labels))
    assert found.mean_average_precision > 0.95
    assert found.exact > 0.8


def test_few_negatives_learn_too() -> None:
    data = squares()
    method = quick("indicator", 40)
    assert isinstance(method, Indicator)
    classifier = lw.fit(data, replace(method, negatives=1, sampling="hard"), lw.Run(device="cpu"))
    assert evaluate_multilabel(Evaluation.of(classifier, data.split("test"), data.labels)).mean_average_precision > 0.9
