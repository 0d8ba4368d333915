"""What the trial and the final run may see, and what the trial settles."""

import statistics
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from labelwise.core.classifier import Classifier
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.zero_shot import evaluate_zero_shot
from labelwise.fitting.zero_shot import RunPlan, fit_zero_shot, plan_runs
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import Clarel, Encoder, Eszsl, ImageMethod
from labelwise.support.errors import DataError
from labelwise.tasks.calibrate import calibrate
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.train_data import TensorSplit, TrainData
from labelwise_papers.baselines.devise import Devise
from labelwise_papers.baselines.ridge import Ridge
from tests.changed import bind_model, changed, exact, known_by_description, model_of, with_penalty
from tests.close import assert_close
from tests.conftest import blobs
from tests.core.test_balance import applied, harmonic, slow_accuracies, slow_curve
from tests.described import UNSEEN, by_vector
from tests.once import once
from tests.pixels_of import px

POISON = -777.0
RUN = Run(device="cpu")
METHODS: dict[str, ImageMethod] = {
    "eszsl": Eszsl(),
    "ridge": Ridge(),
    "devise": Devise(epochs=20),
    "clarel": Clarel(epochs=40, code_size=32),
}


def traced(train: list[int], val: list[int] | None, labels: int = 7) -> Dataset:
    """Images that tell their number and their label; those of test hold a marker that must not turn up anywhere."""
    parts, start = {"train": train} | ({"val": val} if val is not None else {}), 0
    splits = {"test": Split(images=torch.full((labels, 2), POISON), targets=torch.arange(labels))}
    for name, targets in parts.items():
        images = torch.tensor([[float(start + i), float(t)] for i, t in enumerate(targets)]).reshape(-1, 2)
        splits[name] = Split(images=images, targets=torch.tensor(targets, dtype=torch.int64))
        start += len(targets)
    known = Labels(names=tuple(f"n{i}" for i in range(labels)), vectors=torch.eye(labels))
    return Dataset(name="traced", labels=known, splits=splits)


def numbers(split: Split | TensorSplit) -> set[int]:
    """The numbers of a split's images, each of them there once."""
    found = [int(number) for number in px(split)[:, 0]]
    assert len(found) == len(set(found))
    return set(found)


def check_part(data: TrainData) -> None:
    """No test image, no image twice, every target names the label its image tells; training images of seen labels."""
    for part in (data.train, data.val):
        assert not bool((px(part) == POISON).any())
        named = [data.known.names[target] for target in part.targets.tolist()]
        assert named == [f"n{int(label)}" for label in px(part)[:, 1]]
    assert not numbers(data.train) & numbers(data.val)
    assert set(data.train.targets.tolist()) == set(range(len(data.labels)))
    assert data.known.vectors is not None
    rows = [int(name[1:]) for name in data.known.names]
    assert np.array_equal(data.known.vectors, torch.eye(data.known.vectors.shape[1])[rows])


def names(labels: Labels | None) -> set[str]:
    return set() if labels is None else set(labels.names)


@given(
    st.lists(st.integers(-1, 6), min_size=1, max_size=20),
    st.none() | st.lists(st.integers(-1, 6), max_size=12),
    st.integers(0, 5),
)
def test_plans_see_what_they_may(train: list[int], val: list[int] | None, seed: int) -> None:
    data = traced(train, val)
    of_train, of_val = set(train) - {-1}, set(val or []) - {-1}
    seen = of_train | of_val
    assume(of_train and len(seen) >= 2)
    plan = plan_runs(data, Eszsl(), seed)
    labelled = {i for i, target in enumerate([*train, *(val or [])]) if target >= 0}
    check_part(plan.final)
    assert names(plan.final.labels) == {f"n{i}" for i in seen}
    assert names(plan.final.unseen) == {f"n{i}" for i in range(7)} - names(plan.final.labels)
    assert numbers(plan.final.train) | numbers(plan.final.val) == labelled
    if plan.trial is None:
        counts = Counter(target for target in [*train, *(val or [])] if target >= 0)
        assert len(seen) < 4 or min(counts.values()) == 1, "only too few labels or images are a reason"
        return
    assert len(seen) >= 4
    assert not len(plan.final.val)
    check_trial(plan, len(train), of_val - of_train, labelled)


def check_trial(plan: RunPlan, in_train: int, only_val: set[int], labelled: set[int]) -> None:
    """Held labels are those that val alone has, else a third; no image of theirs, and none of val, is trained on.

    Where val alone has so many labels that fewer than two are left to train on, a third is drawn from all images.
    """
    trial = plan.trial
    assert trial is not None
    check_part(trial)
    held, seen = names(trial.unseen), names(plan.final.labels)
    assert names(trial.labels) == seen - held
    too_many = len(seen) - len(only_val) < 2
    given = only_val and not too_many
    assert held == {f"n{i}" for i in only_val} if given else len(held) == max(1, round(len(seen) / 3))
    assert numbers(trial.train) | numbers(trial.val) <= labelled
    assert too_many or all(number < in_train for number in numbers(trial.train))
    images = {int(n): f"n{int(label)}" for n, label in px(plan.final.train).tolist()}
    assert {n for n, name in images.items() if name in held} <= numbers(trial.val)
    lost = labelled - numbers(trial.train) - numbers(trial.val)
    assert not lost, "every labelled image is of use to the trial"


def test_held_labels_are_those_that_only_val_has() -> None:
    trial = plan_runs(traced([0, 0, 1, 1, 4, 4, 5, 5], [1, 2, 2, 6, -1]), Eszsl(), 0).trial
    assert trial is not None
    assert (trial.labels.names, names(trial.unseen)) == (("n0", "n1", "n4", "n5"), {"n2", "n6"})
    assert px(trial.val)[:, 1].tolist() == [1, 2, 2, 6], "val has images of trained labels, so none are set aside"
    assert len(trial.train) == 8


def test_drawn_labels_follow_the_seed() -> None:
    data = traced([i for i in range(9) for _ in range(5)], None, labels=12)
    trials = [plan_runs(data, Eszsl(), seed).trial for seed in (0, 0, *range(1, 8))]
    held = [tuple(sorted(names(trial.unseen))) for trial in trials if trial is not None]
    assert held[0] == held[1]
    assert len(set(held)) > 4
    assert all(len(one) == 3 for one in held)
    assert set().union(*held) <= {f"n{i}" for i in range(9)}
    first = trials[0]
    assert first is not None
    assert torch.bincount(torch.as_tensor(first.train.targets)).tolist() == [4] * 6, (
        "a fifth of the images of other labels is set aside"
    )
    assert torch.bincount(torch.as_tensor(first.val.targets)).tolist() == [1] * 6 + [5] * 3


def test_three_labels_have_no_trial_and_no_gap() -> None:
    plan = plan_runs(traced([0] * 5 + [2] * 5 + [3] * 5, None), Eszsl(), 0)
    assert plan.trial is None
    assert torch.bincount(torch.as_tensor(plan.final.train.targets)).tolist() == [4, 4, 4]
    assert torch.bincount(torch.as_tensor(plan.final.val.targets)).tolist() == [1, 1, 1]
    data = by_vector()
    few = data.split("train").select(
        (torch.as_tensor(data.split("train").targets) < 4).nonzero()[:, 0]
    )  # labels 0, 1 and 3
    found = fit_zero_shot(replace(data, splits={"train": few}), Eszsl(), RUN)
    assert (found.calibration.seen_penalty, len(found.unseen), len(found.labels)) == (0, 9, 12)
    assert "balance" not in found.origin.summary
    assert found.origin.summary["calibration"]["images"] > 0


def test_one_label_is_refused() -> None:
    with pytest.raises(DataError, match=r'images of at least two labels; "traced" has 1\. Add images of others'):
        plan_runs(traced([3, 3, -1], [3]), Eszsl(), 0)


def test_descriptions_are_needed() -> None:
    data = traced([0, 1, 2, 3], None)
    with pytest.raises(DataError, match=r"Nothing describes these labels.*labels\.csv"):
        plan_runs(replace(data, labels=Labels(names=data.labels.names)), Eszsl(), 0)


def test_labels_and_splits_are_joined() -> None:
    first, second = Labels(names=("a",), vectors=torch.ones(1, 2)), Labels(names=("b",), vectors=torch.zeros(1, 2))
    both = replace(first, shares=torch.ones(1), order=(3,)).join(replace(second, texts=(("of b",),)))
    assert (both.names, both.texts, both.shares, both.order) == (("a", "b"), None, None, None)
    assert both.vectors is not None
    assert both.vectors.tolist() == [[1, 1], [0, 0]]
    one = Split(images=torch.zeros(2, 3), targets=torch.tensor([0, 1]), files=("x", "y"), texts=(("s",), ()))
    other = Split(images=torch.ones(1, 3), targets=torch.tensor([2]), files=("z",))
    joined = one.join(other)
    assert (joined.targets.tolist(), joined.files, joined.texts) == ([0, 1, 2], ("x", "y", "z"), ())
    assert px(joined)[:, 0].tolist() == [0, 0, 1]
    data = TrainData(train=TensorSplit.of(one), val=TensorSplit.of(other), labels=first, unseen=second)
    assert data.known.names == ("a", "b")
    assert replace(data, unseen=None).known is first
    assert replace(data, unseen=first).known is first, "images with sentences alone: all labels are unseen"


@pytest.mark.parametrize("method", METHODS)
def test_unseen_labels_are_told_apart(method: str) -> None:
    """Three labels without a training image: chance is a third among themselves, a twelfth among all."""
    data = by_vector()
    found = fit_zero_shot(data, METHODS[method], RUN)
    result = evaluate_zero_shot(Evaluation.of(found, data.split("test"), data.labels))
    assert found.unseen == {f"label {i}" for i in UNSEEN}
    assert (result.seen_labels, result.unseen_labels, result.leaked) == (9, 3, 0)
    assert result.zero_shot > 0.8
    assert result.unseen > 0.4
    assert result.seen > 0.6
    assert result.area > 0.6


def test_test_images_cannot_be_reached() -> None:
    data = by_vector()
    noise = replace(data.split("test"), images=torch.randn(px(data.split("test")).shape))
    pair = [fit_zero_shot(one, Eszsl(), RUN) for one in (data, replace(data, splits={**data.splits, "test": noise}))]
    first, second = (model_of(one).state_dict() for one in pair)
    assert all(np.array_equal(first[name], second[name]) for name in first)
    assert np.array_equal(pair[0].label_embeddings, pair[1].label_embeddings)
    for piece in ("scale", "offset"):
        assert np.array_equal(getattr(pair[0].calibration, piece), getattr(pair[1].calibration, piece))
    assert (pair[0].calibration.seen_penalty, pair[0].calibration.temperature, pair[0].familiarity.rule) == (
        pair[1].calibration.seen_penalty,
        pair[1].calibration.temperature,
        pair[1].familiarity.rule,
    )


def tried(method: ImageMethod, data: TrainData) -> Classifier:
    """The classifier of the trial, no label held back yet."""
    model, _ = train(method, data, RUN)
    return known_by_description(bind_model(model, data.known), *names(data.unseen))


def trial_of(data: Dataset, method: ImageMethod) -> TrainData:
    found = plan_runs(data, method, RUN.seed).trial
    assert found is not None
    return found


@once
def noisy(method: str) -> tuple[Classifier, Classifier]:
    """The classifiers of the trial and of both runs, of data that no method tells apart without a fault."""
    data = by_vector(noise=1.5)
    return tried(METHODS[method], trial_of(data, METHODS[method])), fit_zero_shot(data, METHODS[method], RUN)


@pytest.mark.parametrize("method", ["eszsl", "clarel"])
def test_the_gap_is_the_best_on_held_out_labels(method: str) -> None:
    trial = trial_of(by_vector(noise=1.5), METHODS[method])
    bound, found = noisy(method)
    seen, how, targets = ~bound.calibration.unseen, bound.head.penalty, torch.as_tensor(trial.val.targets)
    scores = exact(bound, trial.val.images).raw
    best = max(harmonic(u, s) for _, u, s in slow_curve(torch.from_numpy(scores), targets, torch.from_numpy(seen), how))
    about = found.origin.summary["balance"]
    unseen, known = slow_accuracies(
        applied(torch.from_numpy(scores), torch.from_numpy(seen), about["gap"], how), targets, torch.from_numpy(seen)
    )
    assert (about["unseen"], about["seen"], about["harmonic"]) == pytest.approx((unseen, known, best))
    assert harmonic(unseen, known) == pytest.approx(best)
    plain = slow_accuracies(torch.from_numpy(scores), targets, torch.from_numpy(seen))
    assert (about["without_gap"]["unseen"], about["without_gap"]["seen"]) == pytest.approx(plain)
    assert (about["held_labels"], about["images"]) == (3, len(trial.val))
    assert best > harmonic(*plain)


@pytest.mark.parametrize("method", ["ridge", "clarel"])
def test_scores_of_both_runs_lie_on_one_scale(method: str) -> None:
    """On its own training images each run gives right labels the same score on average, and scores spread alike."""
    data = by_vector(noise=1.5)
    trial, final = trial_of(data, METHODS[method]), plan_runs(data, METHODS[method], RUN.seed).final
    bound, found = noisy(method)
    embeddings = bound.encode(trial.train.images)
    penalised = changed(bound, seen_penalty=found.origin.summary["balance"]["gap"])
    held = replace(penalised, familiarity=penalised.familiarity.remember(embeddings))
    done = calibrate(exact(held, trial.val.images), torch.as_tensor(trial.val.targets))
    assert level(found, final) == pytest.approx(level(done, trial), rel=1e-3)
    assert found.calibration.temperature == pytest.approx(done.calibration.temperature)
    if found.head.penalty == "scale":
        assert found.calibration.seen_penalty == held.calibration.seen_penalty
    else:
        rows = px(data.split("test"))
        less = [
            float((with_penalty(one, 0.0).scores(rows).log_odds - one.scores(rows).log_odds)[0, 0])
            for one in (found, done)
        ]
        assert less[0] == pytest.approx(less[1], rel=1e-3)
        assert found.calibration.seen_penalty != held.calibration.seen_penalty


def level(classifier: Classifier, data: TrainData) -> tuple[float, float]:
    """The mean score of right labels without a gap, and the mean standard deviation over the seen labels of an image."""
    rows = with_penalty(classifier, 0.0).scores(px(data.train)).log_odds[:, : len(data.labels)].tolist()
    right = [row[target] for row, target in zip(rows, data.train.targets.tolist(), strict=True)]
    return sum(right) / len(right), sum(statistics.pstdev(row) for row in rows) / len(rows)


def test_both_runs_keep_their_files_apart_and_can_be_resumed(tmp_path: Path) -> None:
    data, method = by_vector(), replace(METHODS["clarel"], epochs=2)
    kept = replace(RUN, folder=tmp_path / "run")
    found = fit_zero_shot(data, method, kept)
    logs = [(tmp_path / "run" / part / "log.jsonl").read_text() for part in ("", "trial")]
    assert logs[0] != logs[1]
    again = fit_zero_shot(data, method, replace(kept, resume=True))
    assert_close(again.scores(px(data.split("test"))).log_odds, found.scores(px(data.split("test"))).log_odds)


def test_pictures_train_an_encoder_first() -> None:
    method = Eszsl(epochs=1, encoder=Encoder(backbone="convnet", width=4))
    data = plan_runs(blobs(), method, 0).final
    stages = list(method.stages(method.build(data.spec), data))
    assert [stage.name for stage in stages] == ["eszsl encoder"]
    assert "head" in {name.split(".")[0] for name, _ in method.build(data.spec).named_parameters()}


def test_images_without_sentences_get_those_of_their_label() -> None:
    """Also where one split has no sentences at all, those of the other are not lost."""
    data = by_vector()
    labels = replace(data.labels, texts=tuple((f"of {name}",) for name in data.labels.names))
    train_part = data.split("train")
    own = tuple(() if i == 0 else (f"image {i}",) for i in range(len(train_part)))
    parts = {"train": replace(train_part, texts=own), "val": train_part.select(list(range(9)))}
    plan = plan_runs(replace(data, labels=labels, splits=parts), Eszsl(), 0)
    final, names = plan.final.train, plan.final.labels.names
    assert final.texts[0] == (f"of {names[int(torch.as_tensor(final.targets)[0])]}",)
    assert final.texts[1] == ("image 1",)
    assert final.texts[-1] == (f"of {names[int(torch.as_tensor(final.targets)[-1])]}",)
