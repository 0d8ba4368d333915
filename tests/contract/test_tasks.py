"""Every task works with every method."""

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.core.classifier import UNKNOWN
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.outliers import evaluate_outliers
from labelwise.methods import METHODS
from labelwise.support.errors import UsageError
from tests.conftest import blobs
from tests.contract.subjects import fit_named, pictures, trained
from tests.pixels_of import px

every_method = pytest.mark.parametrize("method", METHODS)


@every_method
def test_classify(method: str) -> None:
    classifier, test = trained(method), pictures(method).split("test")
    found = lw.classify(classifier, px(test), top=2)
    right = [p.top[0][0] == f"blob {t}" for p, t in zip(found, test.targets.tolist(), strict=True)]
    assert np.mean(right) > 0.9
    assert all(len(p.top) == 2 and p.top[0][1] >= p.top[1][1] for p in found)
    assert all(p.label in (p.top[0][0], UNKNOWN) for p in found)


@every_method
def test_ask(method: str) -> None:
    classifier, test = trained(method), pictures(method).split("test")
    targets = test.targets.tolist()
    answers = [lw.ask(classifier, px(test), f"blob {i}") for i in range(4)]
    right = [a.yes == (t == i) for i in range(4) for a, t in zip(answers[i], targets, strict=True)]
    assert np.mean(right) > 0.9  # always no: 0.75 of four labels, 0.83 of six
    with pytest.raises(UsageError, match=r'No label "okapi".*Known labels: blob 0.*teach'):
        lw.ask(classifier, px(test)[:1], "okapi")


@every_method
def test_teach_and_forget(method: str) -> None:
    data = blobs()
    part = data.split("train").select((torch.as_tensor(data.split("train").targets) < 3).nonzero()[:, 0])
    labels = data.labels.select(data.labels.names[:3])
    known = lw.data.Dataset(name="three", labels=labels, splits={"train": part})
    from tests.conftest import quick

    classifier = fit_named(known, quick(method), lw.Run(device="cpu"))
    assert classifier.labels.names == ("blob 0", "blob 1", "blob 2")
    new = px(data.split("train"))[torch.as_tensor(data.split("train").targets) == 3][:5]
    taught = lw.teach(classifier, "blob 3", examples=new)
    test = data.split("test")
    torch.testing.assert_close(
        taught.scores(px(test)).log_odds[:, :3], classifier.scores(px(test)).log_odds, atol=1e-5, rtol=1e-6
    )
    found = [p.top[0][0] for p in lw.classify(taught, px(test))]
    right = np.mean([name == f"blob {t}" for name, t in zip(found, test.targets.tolist(), strict=True)])
    # three texts say little about where a text of images lies; the second opinion of discriminant has no say for a taught label
    assert right > {"clarel": 0.6, "discriminant": 0.8}.get(method, 0.85)
    assert lw.forget(taught, "blob 3").labels.names == classifier.labels.names
    with pytest.raises(UsageError, match='"blob 3" already exists'):
        lw.teach(taught, "blob 3", texts="a blob")
    first = lw.teach(classifier, "blob 3", examples=new[:2])
    more = lw.teach(first, "Blob 3", examples=new[2:])
    assert more.labels.names == taught.labels.names
    torch.testing.assert_close(more.scores(px(test)).log_odds, taught.scores(px(test)).log_odds, atol=1e-3, rtol=1e-3)


@every_method
def test_outliers(method: str) -> None:
    classifier, test = trained(method), pictures(method).split("test")
    strange = torch.full((20, 3, 8, 8), 255, dtype=torch.uint8)
    strange[:, :, ::2] = 0
    assert np.mean([one.flagged for one in lw.outliers(classifier, px(test))]) < 0.2
    result = evaluate_outliers(classifier.scores(px(test)), classifier.scores(strange))
    if "targets" not in METHODS[method].needs:  # its encoder was trained elsewhere, perhaps never on stripes
        return
    assert result.auroc > 0.95
    if not METHODS[method].zero_shot:  # the rule of these lets images of labels pass that training never saw
        assert result.flagged == 1.0
        assert all(one.flagged for one in lw.outliers(classifier, strange))
        assert all(p.label == UNKNOWN for p in lw.classify(classifier, strange))
    inside = evaluate_outliers(classifier.scores(px(test)), classifier.scores(px(test)))
    assert inside.auroc == pytest.approx(0.5)


@every_method
def test_explain(method: str) -> None:
    classifier, test = trained(method), pictures(method).split("test")
    found = lw.explain(classifier, px(test)[:1])
    assert found.label == "blob 0"
    assert float(found.heat.max()) == 1.0
    assert found.heat.shape == (8, 8)
    assert float(found.heat.min()) >= 0
    assert float(found.heat.max()) <= 1
    assert found.overlay(64).size == (64, 64)
    other = lw.explain(classifier, px(test)[:1], "blob 1")
    assert not np.array_equal(found.heat, other.heat), "the heat map does not follow the asked label"


@every_method
def test_evaluate(method: str) -> None:
    data = pictures(method)
    result = evaluate_closed(Evaluation.of(trained(method), data.split("test"), data.labels))
    assert result.images == len(data.split("test"))
    assert result.accuracy > 0.9
    assert 0 <= result.ece <= 1
    assert result.kept > 0.7


@every_method
def test_calibrate_replaces_calibration(method: str) -> None:
    classifier, val = trained(method), pictures(method).split("val")
    again = lw.calibrate(classifier, px(val), torch.as_tensor(val.targets), keep=0.5)
    assert again.familiarity.rule is not None
    assert classifier.familiarity.rule is not None
    assert again.familiarity.rule.limit < classifier.familiarity.rule.limit
    kind = METHODS[method]
    if "targets" in kind.needs and not kind.zero_shot and not kind.leaves_out:  # calibrated on the very same labels
        assert again.calibration.temperature == pytest.approx(classifier.calibration.temperature)
    assert again.calibration.seen_penalty == classifier.calibration.seen_penalty
