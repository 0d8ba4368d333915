from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit

import labelwise as lw
from labelwise.api import fit_verification, verify
from labelwise.core.head import Compares
from labelwise.core.metrics import det_curve, equal_error
from labelwise.support.errors import DataError, UsageError
from labelwise.tasks.similarity import By
from labelwise.tasks.verify import pair_scores, score_pairs
from tests.changed import changed
from tests.close import assert_close
from tests.conftest import blobs, quick, squares
from tests.contract.subjects import roundtrip, trained
from tests.pixels_of import px

VAL, TEST = blobs().split("val"), blobs().split("test")


def test_learned_score_does_not_depend_on_the_order() -> None:
    classifier = trained("prototype")
    there, back = (verify(classifier, px(TEST)[:9], px(TEST)[9:18]), verify(classifier, px(TEST)[9:18], px(TEST)[:9]))
    assert [one.score for one in there] == pytest.approx([one.score for one in back], abs=1e-5)
    embeddings, model = classifier.encode(TEST.images[:18]), classifier.head
    assert isinstance(model, Compares)
    one_way = model.similarity(embeddings[:9], embeddings[9:]).diagonal()
    other = model.similarity(embeddings[9:], embeddings[:9]).diagonal()
    assert not np.allclose(one_way, other, atol=1e-3)
    assert_close(torch.tensor([one.score for one in there]), (one_way + other) / 2)


def test_scores() -> None:
    classifier = trained("prototype")
    a, b = classifier.encode(TEST.images[:7]), classifier.encode(TEST.images[7:14])
    cosine, both = (pair_scores(classifier.head, a, b, by) for by in ("cosine", "sum"))
    assert_close(cosine, torch.cosine_similarity(torch.from_numpy(a), torch.from_numpy(b)))
    assert isinstance(classifier.head, Compares)
    there, back = (classifier.head.matched(*pair) for pair in ((a, b), (b, a)))
    halves = (torch.from_numpy(there).sigmoid() + torch.from_numpy(back).sigmoid()) / 2
    assert_close(both, halves + (torch.as_tensor(cosine) + 1) / 2)
    assert 0 <= float(both.min()) <= float(both.max()) <= 2
    with pytest.raises(UsageError, match='given "angle"'):
        pair_scores(classifier.head, a, b, "angle")  # type: ignore[arg-type]


def test_one_picture_is_compared_with_each() -> None:
    classifier = trained("softmax")
    found = verify(classifier, px(TEST)[0], px(TEST)[:6])
    alone = [verify(classifier, px(TEST)[0], image)[0].score for image in px(TEST)[:6]]
    assert [one.score for one in found] == pytest.approx(alone, abs=1e-5)
    assert found[0].score == pytest.approx(1, abs=1e-5)
    assert found[0].same
    with pytest.raises(UsageError, match=r"given \[2, 3\]"):
        verify(classifier, px(TEST)[:2], px(TEST)[:3])


def test_threshold_by_equal_errors_and_by_false_accepts() -> None:
    classifier = trained("softmax")
    by: By
    for by in ("similarity", "cosine", "sum"):
        same, different = score_pairs(
            classifier.head, classifier.encode(VAL.images), torch.as_tensor(VAL.targets), by, (10**6, 0)
        )
        rule = fit_verification(classifier, VAL, by=by).verifier
        assert rule is not None
        assert (rule.by, rule.rule) == (by, "eer")
        assert (rule.eer, rule.threshold) == equal_error(det_curve(same, different))
        strict = fit_verification(classifier, VAL, 0.01, by=by).verifier
        assert strict is not None
        assert (different >= strict.threshold).mean() <= 0.01
        allowed = int(0.01 * len(different))  # as lenient as that permits
        assert (same < strict.threshold).mean() <= (same <= np.sort(different)[::-1][allowed]).mean()


def test_probability_is_one_of_equally_frequent_kinds() -> None:
    """Held-out pairs, 3 in 4 of them different: weighted as if both kinds were equally frequent, chances sum up."""
    noise = torch.Generator().manual_seed(0)
    noisy = replace(
        VAL, images=(px(VAL).double() + 90 * torch.randn(VAL.images.shape, generator=noise)).clamp(0, 255).byte()
    )
    classifier = fit_verification(trained("softmax"), noisy)
    rule = classifier.verifier
    assert rule is not None
    assert rule.eer > 0.02
    embeddings = classifier.encode(noisy.images)
    same, different = score_pairs(classifier.head, embeddings, noisy.targets, "similarity", (10**6, 0))
    chances = [expit(scores * rule.scale + rule.offset).mean() for scores in (same, different)]
    assert float(chances[0] + chances[1]) == pytest.approx(1, abs=0.1)


def test_rule_is_fitted_with_the_classifier_and_saved() -> None:
    classifier = trained("indicator")
    assert classifier.verifier is not None
    strict = fit_verification(classifier, VAL, 0.05, by="sum")
    again = roundtrip(strict)
    assert again.verifier == strict.verifier
    assert roundtrip(changed(classifier, verifier=None)).verifier is None
    taught = lw.teach(strict, "new", examples=px(TEST)[:3])
    assert taught.verifier == strict.verifier  # embeddings of images stay the same


def test_many_validation_images_are_left_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelwise.fitting.training.MOST_VERIFIED", 10)
    assert lw.fit(blobs(), quick("softmax", 1), lw.Run(device="cpu")).verifier is None
    assert lw.fit(squares(), quick("multilabel", 1), lw.Run(device="cpu")).verifier is None


def test_what_is_missing_is_said() -> None:
    classifier = trained("softmax")
    with pytest.raises(UsageError, match=r"no threshold.*fit_verification.*labelwise calibrate"):
        verify(changed(classifier, verifier=None), px(TEST)[0], px(TEST)[1])
    with pytest.raises(UsageError, match=r'fitted for the score "similarity"; given by="sum"'):
        verify(classifier, px(TEST)[0], px(TEST)[1], by="sum")
    with pytest.raises(DataError, match="two images of one label"):
        fit_verification(classifier, VAL.select((torch.as_tensor(VAL.targets) == 0).nonzero()[:, 0]))
    with pytest.raises(DataError, match="Several labels"):
        fit_verification(classifier, squares().split("val"))
    with pytest.raises(DataError, match="at least 100000"):
        fit_verification(classifier, VAL, 1e-5)
    with pytest.raises(UsageError, match="between 0 and 1"):
        fit_verification(classifier, VAL, 1.5)


@pytest.mark.parametrize("by", ["similarity", "cosine", "sum"])
def test_pairs_looked_up_in_a_table_score_the_same(by: By, monkeypatch: pytest.MonkeyPatch) -> None:
    model, embeddings = trained("prototype").head, trained("prototype").encode(VAL.images)
    looked_up = score_pairs(model, embeddings, torch.as_tensor(VAL.targets), by, (1_000, 0))
    monkeypatch.setattr("labelwise.tasks.verify.TABLE", 0)
    for found, slow in zip(looked_up, score_pairs(model, embeddings, VAL.targets, by, (1_000, 0)), strict=True):
        assert_close(found, slow, atol=1e-4, rtol=1e-4)
