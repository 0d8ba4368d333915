"""Pictures are compared with each other by every method."""

import numpy as np
import pytest
import torch

from labelwise.api import fit_verification, retrieve, verify
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.retrieval import evaluate_retrieval
from labelwise.evaluation.verification import evaluate_verification
from labelwise.methods import METHODS
from labelwise.tasks.gallery import make_gallery
from labelwise.tasks.similarity import By, known_scores, row_similarity, similarity_matrix
from tests.contract.subjects import pictures, trained
from tests.pixels_of import px


@pytest.mark.parametrize("method", METHODS)
def test_verify_and_retrieve(method: str) -> None:
    """What is asked of a pair is a part of what is asked of all, and a fitted threshold tells most pairs."""
    data = pictures(method)
    # embeddings that were not trained for these labels tell them apart once they are whitened
    by: By = "whitened" if METHODS[method].leaves_out else "similarity"
    classifier = fit_verification(trained(method), data.split("val"), by=by)
    test = data.split("test")
    embeddings = classifier.encode(test.images[:10])
    for by in known_scores(classifier.head):
        every = similarity_matrix(classifier.head, embeddings[:5], embeddings[5:], by)
        alone = row_similarity(classifier.head, embeddings[:5], embeddings[5:], by)
        np.testing.assert_allclose(alone, every.diagonal(), atol=1e-5, rtol=1e-5)
    half = len(test) // 2
    found = verify(classifier, px(test)[:half], px(test)[half : 2 * half].roll(1, 0))
    same = torch.as_tensor(test.targets)[:half] == torch.as_tensor(test.targets)[half : 2 * half].roll(1)
    found += verify(classifier, px(test)[:half], px(test)[half : 2 * half])
    same = torch.cat([same, torch.as_tensor(test.targets)[:half] == torch.as_tensor(test.targets)[half : 2 * half]])
    assert same.any()
    assert not same.all()
    least = 0.7 if METHODS[method].leaves_out else 0.8
    assert (torch.tensor([one.same for one in found]) == same).double().mean() > least
    assert all(0 <= one.probability <= 1 for one in found)
    names = [str(i) for i in range(len(test))]
    gallery = make_gallery(classifier, px(test), names, test.words(data.labels.names))
    matches = retrieve(classifier, px(test), gallery, 3, candidates=None)
    first = [next(m.label for m in row if m.file != name) for name, row in zip(names, matches, strict=True)]
    assert np.mean([a == b for a, b in zip(first, gallery.labels, strict=True)]) > 0.8
    assert evaluate_retrieval(Evaluation.of(classifier, test)).recall[1] > 0.8
    assert evaluate_verification(Evaluation.of(classifier, test)).eer < 0.25
