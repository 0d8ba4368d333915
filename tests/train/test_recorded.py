"""Recorded steps: the same weights as steps taken as they stand. What needs a GPU is skipped without one."""

import warnings
from dataclasses import replace

import pytest
import torch

from labelwise.support.errors import UsageError
from labelwise.support.settings import of_the_run
from labelwise.train.batches import Draw
from labelwise.train.loop import train
from labelwise.train.method import Run
from labelwise.train.step import WARM, RecordedStep
from tests.train.recorded_cases import CASES, EAGER, distance, resumed, trained

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@on_gpu
@pytest.mark.parametrize("name", CASES)
def test_a_recorded_run_ends_with_the_weights_of_an_eager_one(name: str) -> None:
    eager, _ = trained(name, "eager", exact=True)
    recorded, engines = trained(name, "recorded", exact=True)
    assert distance(eager, recorded) == 0
    assert {words.partition(":")[0] for words in engines.values()} == {"eager" if name in EAGER else "recorded"}


@on_gpu
@pytest.mark.parametrize("name", ["softmax", "softmax, Adam, averaged", "simclr", "cgan"])
def test_a_stopped_recorded_run_ends_where_one_in_one_go_does(name: str) -> None:
    assert resumed(name, "recorded") == 0


class _Spy:
    """A step that does nothing but say how it was taken, as if on a GPU."""

    def __init__(self, phases: int = 1) -> None:
        data, method = CASES["softmax"]()
        stage = next(method.stages(method.build(data.spec), data))
        self.stage, self.taken = replace(stage, phases=phases), []  # type: ignore[var-annotated]
        self.generator, self.device = torch.Generator(), torch.device("cpu")

    def take(self, draw: Draw, number: int) -> dict[str, torch.Tensor]:
        self.taken.append(("eager", number))
        return {}

    def set_rate(self, number: int) -> None:
        self.taken.append(("rate", number))


class _Replay:
    def __init__(self, spy: _Spy) -> None:
        self.spy = spy

    def replay(self, draw: Draw) -> dict[str, torch.Tensor]:
        self.spy.taken.append(("replay", draw.seed))
        return {}


def _draw(seed: int, rows: int = 4) -> Draw:
    return Draw(rows=torch.arange(rows), images=None, part=slice(0, rows), total=rows, seed=seed)


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the watch of a GPU would have said of a step."""
    waits: list[str] = []

    class Watch:
        def __enter__(self) -> list[str]:
            return waits

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr("labelwise.train.step._watched", Watch)
    return waits


def _recording(spy: _Spy, monkeypatch: pytest.MonkeyPatch) -> RecordedStep:
    step = RecordedStep(spy)  # type: ignore[arg-type]

    def record(self: RecordedStep, draw: Draw, number: int, kind: tuple[int, int]) -> _Replay:
        self._captured[kind] = _Replay(spy)  # type: ignore[assignment]
        spy.taken.append(("record", kind))
        return self._captured[kind]  # type: ignore[return-value]

    monkeypatch.setattr(RecordedStep, "_record", record)
    return step


def test_each_kind_of_step_is_recorded_after_a_few_and_replayed_with_its_own_numbers(
    quiet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spy = _Spy(phases=2)
    step = _recording(spy, monkeypatch)
    for number in range(2 * WARM + 3):
        step.take(_draw(100 + number), number)
    eager = [("eager", number) for number in range(2 * WARM)]
    later = [*range(2 * WARM, 2 * WARM + 3)]
    assert [each for each in spy.taken if each[0] == "eager"] == eager, (
        "the first of each phase are taken as they stand"
    )
    assert [each[1] for each in spy.taken if each[0] == "record"] == [(0, 4), (1, 4)]
    assert [each[1] for each in spy.taken if each[0] == "replay"] == [100 + number for number in later]
    assert [each[1] for each in spy.taken if each[0] == "rate"] == later, "each has its own learning rate"
    assert step.words == "recorded"


def test_rows_of_another_number_are_another_kind(quiet: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    spy = _Spy()
    step = _recording(spy, monkeypatch)
    for number in range(WARM + 1):
        step.take(_draw(number), number)
    spy.taken.clear()
    step.take(_draw(9, rows=3), WARM + 1)
    assert spy.taken == [("eager", WARM + 1)]


def test_a_step_that_waits_for_the_device_is_never_recorded(quiet: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    spy = _Spy()
    step = _recording(spy, monkeypatch)
    quiet.append("loss.py:7")
    for number in range(WARM + 5):
        step.take(_draw(number), number)
    assert {each[0] for each in spy.taken} == {"eager"}
    assert step.words == "eager: it waits for the GPU (loss.py:7)"


def test_a_cpu_takes_steps_as_they_stand() -> None:
    data, method = CASES["head on features"]()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, summary = train(replace(method, epochs=1), data, Run(device="cpu", engine="compiled"))  # type: ignore[call-arg]
    assert "engine" not in summary


def test_the_engine_is_a_setting_of_the_run() -> None:
    words = ["epochs=3", "run.engine=eager"]
    assert of_the_run(words) == ("eager", 1)
    assert words == ["epochs=3"]
    assert of_the_run(words) == ("auto", 1)
    with pytest.raises(UsageError, match='Unknown engine "fast"'):
        Run(engine="fast")
