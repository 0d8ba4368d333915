"""A session: what is asked, what is guessed, what is told of it, and that actions alone restore it."""

import numpy as np
import pytest

from labelwise.label.actions import Action
from labelwise.label.engine import WEIGHTS, Engine
from labelwise.label.guess import Answered, regression_scores
from labelwise.label.ledger import Ledger
from labelwise.label.person import Person, accuracy, simulate
from labelwise.label.session import Session
from labelwise.label.space import make_space
from labelwise.label.spread import Spread
from labelwise.support.errors import DataError, UsageError
from tests.label.blobs import blobs

FEATURES, TRUTH = blobs()
SPACE = make_space(FEATURES)


def labelled(actions: int = 12, checks: float = 0.1, seed: int = 0) -> Session:
    session = Session(SPACE, checks=checks, seed=seed)
    for _ in simulate(session, Person(TRUTH), actions=actions):
        pass
    return session


def test_few_answers_label_all() -> None:
    session = labelled(12)
    assert sorted(session.names) == sorted(set(TRUTH))
    assert accuracy(session, TRUTH) > 0.95
    sure = [(one.label, truth) for one, truth in zip(session.labels(), TRUTH, strict=True) if one.label]
    assert len(sure) > 120
    assert np.mean([label == truth for label, truth in sure]) >= 0.95


def test_typical_images_beat_random_ones() -> None:
    asked = Session(SPACE, checks=0)
    for _ in simulate(asked, Person(TRUTH), sheets=False, actions=6):
        pass
    drawn = []
    for seed in range(5):
        session = Session(SPACE)
        for row in np.random.default_rng(seed).permutation(len(TRUTH))[:6].tolist():
            session.name([row], TRUTH[row])
        drawn.append(accuracy(session, TRUTH))
    assert accuracy(asked, TRUTH) > np.mean(drawn)


def test_a_sheet_has_images_of_one_label_and_many_of_them() -> None:
    question = Session(SPACE).question()
    assert question is not None
    assert question.form == "sheet"
    labels = [TRUTH[row] for row in question.rows]
    assert len(labels) >= 20
    assert max(map(labels.count, labels)) >= 0.9 * len(labels)


def test_a_divided_sheet_is_smaller() -> None:
    session = Session(SPACE)
    first = session.question()
    assert first is not None
    session.add(Action(kind="split", rows=first.rows, form="sheet"))
    again = session.question()
    assert again is not None
    assert again.rows != first.rows
    assert len(again.rows) < len(first.rows)


def test_actions_restore_a_session_with_undone_ones() -> None:
    session = labelled(10)
    session.undo()
    session.add(Action(kind="merge", label=session.names[0], into=session.names[1]))
    again = Session(SPACE, actions=[Action.read(one.document()) for one in session.actions])
    assert again.names == session.names
    assert (again.ledger.targets == session.ledger.targets).all()
    assert again.ledger.checks == session.ledger.checks
    assert (again.chances.argmax(1) == session.chances.argmax(1)).mean() > 0.9  # the covariance is as of now


def test_undo_takes_back_the_last_action_and_its_label() -> None:
    session = Session(SPACE)
    session.name([0, 1], "owl")
    session.name([2], "crow")
    assert session.undo() == session.actions[1]
    assert session.names == ["owl"]
    assert session.undo() == session.actions[0]
    assert session.undo() is None
    assert session.names == []


def test_undo_is_of_the_person_who_asks() -> None:
    session = Session(SPACE)
    session.add(Action(kind="name", rows=(0,), label="owl", person="ann"))
    session.add(Action(kind="name", rows=(1,), label="owl", person="bob"))
    session.undo("ann")
    assert session.ledger.targets[:2].tolist() == [-1, 0]


def test_spread_follows_answers_that_are_taken_back() -> None:
    ledger, engine, fresh = Ledger(len(SPACE)), Engine(SPACE), Spread(SPACE)
    ledger.add(Action(kind="name", rows=(0, 5, 9), label="owl"))
    engine.update(ledger)
    ledger.add(Action(kind="name", rows=(5,), label="crow"))
    engine.update(ledger)
    fresh.widen(2)
    fresh.add(np.array([0, 9, 5]), np.array([0, 0, 1]))
    np.testing.assert_allclose(engine.spread.values, fresh.values, atol=1e-5)


def test_checks_are_random_hide_the_guess_and_train_nothing() -> None:
    session = labelled(40, checks=0.4, seed=3)
    assert len(session.ledger.checks) >= 5
    assert not set(session.ledger.checks) & set(session.ledger.answered().rows.tolist())
    order = [row for row in session._stream if row in session.ledger.checks]
    assert order == list(session.ledger.checks)
    asked = [action for action in session.actions if action.form == "check"]
    assert all(action.guess for action in asked)
    while (question := session.question()) is not None and question.form != "check":
        session.name(question.rows, TRUTH[question.rows[0]])
    assert question is None or not question.suggestions


def test_the_accuracy_told_is_that_of_images_without_an_answer() -> None:
    features, truth = blobs((150, 120, 90, 60), noise=1.3, seed=5)
    space, told, true, inside = make_space(features), [], [], 0
    for seed in range(10):
        session = Session(space, checks=0.5, seed=seed)
        for _ in simulate(session, Person(truth, seed=seed), sheets=False, actions=60):
            pass
        progress = session.progress()
        assert progress.accuracy is not None
        told.append(progress.accuracy)
        true.append(accuracy(session, truth, lambda one: one.ledger.targets == -1))
        inside += progress.low <= true[-1] <= progress.high
    assert abs(np.mean(told) - np.mean(true)) < 0.06
    assert inside >= 9


@pytest.mark.parametrize(
    ("answers", "settled"), [(["crow"], "crow"), (["owl", "owl"], "owl"), (["owl", "jay", "gull"], "gull")]
)
def test_a_check_is_asked_again_where_the_guess_differs(answers: list[str], settled: str) -> None:
    session = Session(SPACE, checks=0.9)
    session.name([0], "crow")
    row = -1
    for answer in answers:
        question = session.question(sheets=False)
        while question is not None and question.rows[0] != row and row >= 0:
            session.add(Action(kind="name", rows=question.rows, label="crow", form=question.form))
            question = session.question(sheets=False)
        assert question is not None
        assert question.form == "check"
        assert question.again == (row >= 0)
        row = question.rows[0]
        session.add(Action(kind="name", rows=(row,), label=answer, form="check", guess="crow"))
    assert not session.ledger.again
    assert session.names[session.ledger.checks[row]] == settled


def test_slips_do_not_count_against_the_guesses() -> None:
    features, truth = blobs((300, 250, 200), noise=0.2, seed=2)
    space, answered = make_space(features), []
    for seed in range(3):
        session = Session(space, checks=0.5, seed=seed)
        for _ in simulate(session, Person(truth, mistakes=0.2, seed=seed), sheets=False, actions=60):
            pass
        answered += [session.names[label] == truth[row] for row, label in session.ledger.checks.items()]
    assert np.mean(answered) > 0.9


def test_regression_guesses_labels_that_form_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(600, 12))
    features[:, :3] *= 3  # of which the labels say nothing
    truth = ["scratch" if row[5] > 1.2 else "free" for row in features]
    rows = generator.permutation(600)[:150].tolist()

    def rest() -> tuple[Session, float]:
        session = Session(features.astype(np.float32), checks=0)
        for row in rows:
            session.name([row], truth[row])
        return session, accuracy(session, truth, lambda one: one.ledger.targets == -1)

    session, chosen = rest()
    assert session._engine.rule.weight > WEIGHTS[0]
    monkeypatch.setattr("labelwise.label.engine.WEIGHTS", (0.0,))
    assert chosen > rest()[1] + 0.1


def test_regression_is_the_solution_of_its_equations() -> None:
    answered = Answered(np.arange(9), np.arange(9) % 3, 3, np.arange(9))
    points = SPACE.directions
    known, labels = points[:9].astype(float), np.eye(3)[np.arange(9) % 3]
    centred = known - known.mean(0)
    penalty = 0.3 * (centred**2).sum() / 9
    slow = np.linalg.inv(centred.T @ centred + penalty * np.eye(centred.shape[1])) @ centred.T @ labels
    fast = regression_scores(points, answered, points[9:20])
    np.testing.assert_allclose(fast, (points[9:20] - known.mean(0)) @ slow + 1 / 3, atol=1e-4)
    np.testing.assert_allclose(fast.sum(1), 1, atol=1e-4)


def test_unknown_images_get_no_label() -> None:
    session = labelled(6)
    session.add(Action(kind="unknown", rows=(3,)))
    assert session.labels()[3].label == ""
    assert session.labels()[3].source == "person"


def test_unknown_images_come_in_groups_that_can_be_named() -> None:
    session = Session(SPACE)
    assert session.unknown_groups() == []
    rows = {label: [row for row, one in enumerate(TRUTH) if one == label][:15] for label in ("label 0", "label 1")}
    session.add(Action(kind="unknown", rows=(*rows["label 0"], *rows["label 1"])))
    groups = session.unknown_groups()
    assert sorted(row for group in groups for row in group) == sorted(rows["label 0"] + rows["label 1"])
    assert all(len({TRUTH[row] for row in group}) == 1 for group in groups)
    session.name(groups[0], "owl")
    assert sorted(row for group in session.unknown_groups() for row in group) == sorted(
        row for group in groups[1:] for row in group
    )
    assert (session.ledger.targets[list(groups[0])] == session.names.index("owl")).all()


def test_not_a_label_is_not_guessed_again() -> None:
    session = labelled(8)
    row = int(np.flatnonzero(session.ledger.open_rows())[0])
    guess = session.names[int(session.chances[row].argmax())]
    session.add(Action(kind="not", rows=(row,), label=guess))
    assert session.names[int(session.chances[row].argmax())] != guess


def test_after_a_no_the_question_is_what_it_is() -> None:
    truth = ["free"] * 9 + ["crack"]
    session = Session(np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32), checks=0)
    for _ in simulate(session, Person(truth), sheets=False, actions=25):
        pass
    assert sorted(session.names) == ["crack", "free"]
    assert session.progress().answered == 10
    session = Session(SPACE)
    session.add(Action(kind="not", rows=(3,), label="owl", form="yes"))
    assert session.ledger.hits == [False]


def test_merge_moves_labels_behind_it() -> None:
    session = Session(SPACE)
    for row, label in enumerate(("owl", "crow", "jay")):
        session.name([row], label)
    session.add(Action(kind="merge", label="owl", into="jay"))
    assert session.names == ["crow", "jay"]
    assert session.ledger.targets[:3].tolist() == [1, 0, 1]
    assert session.chances.shape[1] == 2


def test_what_others_are_asked_is_not_asked_again() -> None:
    session = Session(SPACE, checks=0)
    first = session.question()
    assert first is not None
    second = session.question(busy=first.rows)
    assert second is not None
    assert not set(first.rows) & set(second.rows)


def test_it_ends_when_every_image_has_an_answer() -> None:
    session = Session(SPACE)
    session.name(range(len(TRUTH)), "all")
    assert session.question() is None
    assert session.progress().answered == len(TRUTH)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"kind": "shout", "rows": [1]}, "An action is one of"),
        ({"kind": "name", "rows": [], "label": "x"}, "does not take 0 images"),
        ({"kind": "name", "rows": [1, 1], "label": "x"}, "does not take 2 images"),
        ({"kind": "name", "rows": "12", "label": "x"}, "whole numbers"),
        ({"kind": "name", "rows": [True], "label": "x"}, "whole numbers"),
        ({"kind": "name", "rows": [1], "label": 3}, "texts"),
        ({"kind": "name", "rows": [1], "label": ""}, "name"),
        ({"kind": "name", "rows": [1], "label": "x", "colour": 1}, "colour"),
        ({"kind": "name", "rows": [1], "label": "x", "seconds": -1}, "seconds"),
        ({"kind": "add", "rows": [1], "label": "x"}, "does not take 1"),
    ],
)
def test_wrong_actions_say_what_is_wrong(document: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Action.read(document)


def test_wrong_rows_and_labels_change_nothing() -> None:
    session = Session(SPACE)
    for action in (
        Action(kind="name", rows=(len(TRUTH),), label="x"),
        Action(kind="merge", label="a", into="b"),
        Action(kind="undo", of=0),
    ):
        with pytest.raises(UsageError):
            session.add(action)
    assert session.actions == []


@pytest.mark.parametrize("n", [2, 3, 7])
def test_few_images_and_copies_work(n: int) -> None:
    session = Session(np.ones((n, 4), np.float32))
    while (question := session.question()) is not None:
        session.name(question.rows, "one")
    assert session.progress().answered == n


def test_features_that_are_no_numbers_are_refused() -> None:
    with pytest.raises(DataError, match="finite"):
        Session(np.array([[1.0, np.nan], [0.0, 1.0]]))
    with pytest.raises(DataError, match="two images"):
        Session(np.ones((1, 4)))


def test_mistakes_cost_little() -> None:
    right = []
    for seed in range(4):
        session = Session(SPACE)
        for _ in simulate(session, Person(TRUTH, mistakes=0.1, seed=seed), actions=25):
            pass
        right.append(accuracy(session, TRUTH))
    assert np.mean(right) > 0.88


def test_an_undo_that_cannot_be_changes_nothing() -> None:
    """The label was merged by somebody else since: the session kept the undo, and every later step failed."""
    session = labelled()
    session.add(Action(kind="add", label="one", person="ann"))
    session.add(Action(kind="add", label="two", person="bob"))
    session.add(Action(kind="merge", label="one", into="two", person="bob"))
    before = list(session.actions)
    with pytest.raises(UsageError, match='no label "one"'):
        session.undo("ann")
    assert session.actions == before
    session.add(Action(kind="add", label="three"))
    assert session.undo() is not None


def test_a_lower_probability_labels_more_images() -> None:
    features, truth = blobs((60, 50, 40), noise=1.3, seed=5)
    session = Session(features, checks=0)
    for _ in simulate(session, Person(truth), sheets=False, actions=12):
        pass
    counts = [sum(bool(one.label) for one in session.labels(min_probability=least)) for least in (0, 0.5, 0.9, 1)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] == len(session) > counts[-1]
    with pytest.raises(UsageError, match="between 0 and 1; given 2"):
        session.labels(min_probability=2)


def test_the_first_questions_reach_all_parts_of_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    """One label has four dense groups side by side, where all images are typical; the other five are loose."""
    generator = np.random.default_rng(0)
    centres = 3 * generator.normal(size=(6, 20))
    dense = np.repeat(centres[:1] + generator.normal(size=(4, 20)), 100, 0) + 0.1 * generator.normal(size=(400, 20))
    loose = np.repeat(centres[1:], 60, 0) + generator.normal(size=(300, 20))
    space = make_space(np.concatenate([dense, loose]).astype(np.float32))
    truth = ["dense"] * 400 + [f"loose {place // 60}" for place in range(300)]

    def labels_after(answers: int) -> int:
        session = Session(space, checks=0)
        for _ in simulate(session, Person(truth), sheets=False, actions=answers):
            pass
        return len(session.names)

    assert labels_after(12) == 6
    monkeypatch.setattr("labelwise.label.questions.reach", lambda *_: 0)
    assert labels_after(12) < 3


def test_a_large_sheet_does_not_put_off_the_next_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = list[int]()
    monkeypatch.setattr(Engine, "_decide", lambda _engine, answered, _checks: decided.append(len(answered.rows)))
    engine, ledger = Engine(SPACE), Ledger(len(SPACE))
    ledger.add(Action(kind="name", rows=tuple(range(60)), label="free", form="sheet"))
    for row in range(60, 80):
        ledger.add(Action(kind="name", rows=(row,), label="crack"))
        engine.update(ledger)
    assert decided == [69, 75]  # after 10 and 16 actions
