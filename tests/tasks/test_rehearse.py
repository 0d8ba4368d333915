"""What examples of a new label say of themselves before it is taught."""

from dataclasses import replace

import pytest
import torch

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.fitting.fit import fit
from labelwise.images.dataset import Split
from labelwise.methods import Discriminant, Softmax
from labelwise.tasks.teach import Rehearsal, rehearse, teach
from labelwise.train.method import Method
from tests.methods.discriminant.test_method import CPU, data_of, features


@pytest.fixture(params=["discriminant", "softmax"])
def classifier(request: pytest.FixtureRequest) -> Classifier:
    """One that knows labels 0 to 5 of eight."""
    method: Method = Discriminant() if request.param == "discriminant" else Softmax(epochs=20)
    images, targets, _ = features(8, 30)
    known = targets < 6
    train = Split(images=images[known], targets=targets[known])
    return fit(replace(data_of(6, 30), splits={"train": train}), method, CPU)


def of_label(label: int, count: int) -> torch.Tensor:
    images, targets, _ = features(8, 40, seed=1, hold=0.4)
    return images[targets == label][:count]


def slowly(classifier: Classifier, examples: torch.Tensor) -> int:
    """How many examples get the new label when it is taught from the others."""
    right = 0
    for i in range(len(examples)):
        rest = torch.cat([examples[:i], examples[i + 1 :]])
        taught = teach(classifier, "new", examples=classifier.scores(rest))
        right += lw.classify(taught, examples[i : i + 1])[0].top[0][0] == "new"
    return right


def test_each_example_is_answered_as_if_it_were_none(classifier: Classifier) -> None:
    for examples in (of_label(6, 5), torch.cat([of_label(6, 3), of_label(2, 2)])):
        about = rehearse(classifier, "new", classifier.scores(examples))
        assert about.right == slowly(classifier, examples)


def test_the_nearest_label_is_the_one_it_was_mistaken_for(classifier: Classifier) -> None:
    about = rehearse(classifier, "again", classifier.scores(of_label(4, 6)))
    assert about.nearest == "label 4"


def test_an_intruder_is_named(classifier: Classifier) -> None:
    means = torch.stack([of_label(i, 40).mean(0) for i in range(8)])
    opposite = int(
        torch.nn.functional.normalize(means - means.mean(0), dim=1)[6].matmul((means - means.mean(0)).T).argmin()
    )
    examples = torch.cat([of_label(6, 2), of_label(opposite, 1), of_label(6, 6)[3:]])
    about = rehearse(classifier, "new", classifier.scores(examples))
    assert about.odd == (2,)
    assert "c.jpg" in about.words("new", ["a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg", "f.jpg"])
    assert rehearse(classifier, "new", classifier.scores(of_label(6, 5))).odd == ()


def test_of_one_example_nothing_can_be_checked_and_many_are_left_out_in_parts(classifier: Classifier) -> None:
    alone = rehearse(classifier, "new", classifier.scores(of_label(6, 1)))
    assert alone == Rehearsal(examples=1, nearest=alone.nearest)
    assert "One example cannot be checked" in alone.words("new", ["a.jpg"])
    many = torch.cat([of_label(6, 40), of_label(6, 5)])
    assert rehearse(classifier, "new", classifier.scores(many)).examples == 45


@pytest.mark.parametrize(("right", "more"), [(1, True), (2, False)])
def test_a_label_that_few_examples_get_needs_more(right: int, more: bool) -> None:
    about = Rehearsal(examples=4, nearest="owl", outnumbered=4, right=right)
    assert about.words("new", []).endswith("Give more examples.") == more
