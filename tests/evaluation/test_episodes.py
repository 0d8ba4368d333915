import math
from dataclasses import replace

import pytest
import torch

from labelwise.core.model import LearnsFromExamples, as_float
from labelwise.evaluation import episodes as module
from labelwise.evaluation.episode import episodes
from labelwise.evaluation.episodes import (
    EpisodeSettings,
    episode_accuracies,
    estimate,
    evaluate_episodes,
)
from labelwise.evaluation.evaluation import Evaluation
from labelwise.methods import METHODS
from labelwise.support.errors import DataError, UsageError
from tests.conftest import blobs, squares
from tests.contract.subjects import trained
from tests.evaluation.test_verification import noisy

FEW = EpisodeSettings(ways=3, shots=2, queries=4, count=6, seed=5)
TEST = noisy(blobs().split("test"))


@pytest.mark.parametrize("chunk", [1, 2**22])
@pytest.mark.parametrize("method", METHODS)
def test_accuracies_are_those_of_episodes_taught_one_by_one(
    method: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    model = trained(method).model
    assert isinstance(model, LearnsFromExamples)
    images = as_float(TEST.images)
    with torch.no_grad():
        embeddings = model.encode_images(images).float()
    found = episode_accuracies(model, embeddings, torch.as_tensor(TEST.targets), FEW)
    for place, episode in enumerate(episodes(torch.as_tensor(TEST.targets), 3, 2, 4, 6, 5)):
        with torch.no_grad():
            examples = model.encode_images(images[episode.support.flatten()]).float()
            label_embeddings = model.labels_from_examples(examples, torch.tensor([0, 0, 1, 1, 2, 2]))
            taught = model.score(model.encode_images(images[episode.query.flatten()]), label_embeddings).argmax(1)
        right = {"taught": 0, "nearest mean": 0, "cosine": 0}
        for i, row in enumerate(episode.query.flatten().tolist()):
            means = [embeddings[rows].mean(0) for rows in episode.support]
            near = min(range(3), key=lambda c: float((embeddings[row] - means[c]).norm()))
            like = max(range(3), key=lambda c: float(torch.cosine_similarity(embeddings[row], means[c], dim=0)))
            for name, answer in (("taught", int(taught[i])), ("nearest mean", near), ("cosine", like)):
                right[name] += answer == i // 4
        assert {name: round(float(hits[place]) * 12) for name, hits in found.items()} == right


def test_the_estimate_is_a_mean_and_a_normal_interval() -> None:
    found = estimate(torch.tensor([0.2, 0.4, 0.6, 0.8]))
    spread = math.sqrt(sum((x - 0.5) ** 2 for x in (0.2, 0.4, 0.6, 0.8)) / 3)
    assert found.mean == pytest.approx(0.5)
    assert found.error == pytest.approx(1.96 * spread / 2)
    assert str(found) == "50.00 +- 25.30 %"


def test_result_of_a_split() -> None:
    classifier = trained("prototype")
    split = replace(TEST, targets=torch.where(torch.arange(len(TEST)) < 5, -1, torch.as_tensor(TEST.targets)))
    one, five = (replace(FEW, shots=shots, count=50) for shots in (1, 5))
    found = [evaluate_episodes(Evaluation.of(classifier, split), each) for each in (one, five)]
    assert (found[0].labels, found[0].images, found[0].leaked) == (4, len(TEST) - 5, 0)
    assert found[0].settings == one
    assert set(found[0].accuracy) == {"taught", "nearest mean", "cosine"}
    assert 1 / 3 < found[0].accuracy["taught"].mean < found[1].accuracy["taught"].mean <= 1, "more shots help"
    assert evaluate_episodes(Evaluation.of(classifier, blobs().split("train")), one).leaked == 1


def test_errors() -> None:
    classifier = trained("softmax")
    with pytest.raises(DataError, match="4 classes have the 6 images"):
        evaluate_episodes(Evaluation.of(classifier, TEST), replace(FEW, ways=5))
    with pytest.raises(UsageError, match="at least two episodes; given 1"):
        evaluate_episodes(Evaluation.of(classifier, TEST), replace(FEW, count=1))
    with pytest.raises(DataError, match="Several labels may be true"):
        evaluate_episodes(Evaluation.of(classifier, squares(30).split("test")))
