"""What heads can do besides scoring, and the gradient that heat maps follow."""

import numpy as np
import pytest
import torch

from labelwise.core.arrays import Array
from labelwise.core.head import Compares, LearnsFromExamples, SensesFamiliarity, Whitens, can, cannot, feature_slopes
from labelwise.support.errors import UnsupportedError
from labelwise.tasks.teach import teach
from labelwise.train.model import as_float
from tests.changed import model_of
from tests.contract.subjects import trained
from tests.plain import Weighed, plain_classifier

EYE = np.eye(3, dtype=np.float32)


class Able(Weighed):
    """A head that learns labels from examples, and knows how unfamiliar an image is."""

    def labels_from_examples(self, embeddings: Array, groups: Array) -> Array:
        return np.stack([embeddings[groups == group].mean(0) for group in range(int(groups.max()) + 1)])

    def outlier_score(self, embeddings: Array, label_embeddings: Array) -> Array:
        return np.asarray(embeddings.sum(1))


def test_a_capability_is_having_its_functions() -> None:
    plain, able = Weighed(weights=EYE), Able(weights=EYE)
    assert can(plain) == []
    assert can(able) == ["learn a label from example images"]
    assert isinstance(able, LearnsFromExamples)
    assert isinstance(able, SensesFamiliarity)
    for capability in (LearnsFromExamples, Compares, Whitens, SensesFamiliarity):
        assert not isinstance(plain, capability)


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_what_methods_can_do(method: str) -> None:
    both = {"learn a label from example images", "compare whitened embeddings"}
    more = {"compare images by a learned similarity"} if method == "prototype" else set()
    assert set(can(trained(method).head)) == both | more


def test_what_a_head_cannot_do_says_so_and_what_it_can() -> None:
    plain = 'A classifier of kind "weighed" cannot fly. It can: '
    assert str(cannot(Weighed(weights=EYE), "fly")) == f"{plain}score images and labels only."
    assert str(cannot(Able(weights=EYE), "fly")) == f"{plain}learn a label from example images."
    classifier = plain_classifier()
    examples = classifier.scores(np.zeros((1, 3, 2, 2), np.uint8))
    with pytest.raises(UnsupportedError, match='"weighed" cannot learn a label from example images'):
        teach(classifier, "d", examples=examples)


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_slopes_are_those_of_torch(method: str) -> None:
    classifier, model = trained(method), model_of(trained(method))
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 8, 8), np.uint8)
    features = classifier.encoder(images)
    weights = np.random.default_rng(1).normal(size=(2, len(classifier.labels)))
    slopes = feature_slopes(classifier.head, features, classifier.label_embeddings, weights)
    maps = model.encoder.maps(as_float(torch.from_numpy(images))).detach().requires_grad_()
    scores = model.score(model.finish(model.encoder.pool(maps)).float(), torch.from_numpy(classifier.label_embeddings))
    (wanted,) = torch.autograd.grad((scores * torch.from_numpy(weights)).sum(), maps)
    np.testing.assert_allclose(slopes, wanted.sum((2, 3)), rtol=1e-2, atol=1e-3 * float(wanted.sum((2, 3)).abs().max()))


def test_bytes_become_floats_between_0_and_1() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8)
    torch.testing.assert_close(as_float(images), torch.tensor([0, 0.2, 1]))
