"""Recorded steps: the same weights as steps taken as they stand. What needs a GPU is skipped without one."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
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

    monkeypatch.setattr("labelwise.train.step._caught_warnings", Watch)
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


class _Stuck(torch.Generator):
    """A generator that a failed recording left marked as being recorded: it refuses to draw until it has another state."""

    stuck = False

    def manual_seed(self, seed: int) -> "_Stuck":
        if self.stuck:
            raise RuntimeError("Offset increment outside graph capture encountered unexpectedly.")
        super().manual_seed(seed)
        return self

    def graphsafe_get_state(self) -> "_Stuck":
        return self

    def graphsafe_set_state(self, state: "_Stuck") -> None:  # type: ignore[override]
        self.stuck = False
        self.manual_seed(state.initial_seed())


class _Graph:
    """A recording that runs out of memory on its way, as torch leaves it."""

    def __init__(self) -> None:
        self.generators = [torch.cuda.default_generators[0]]

    def register_generator_state(self, generator: torch.Generator) -> None:
        self.generators.append(generator)

    def reset(self) -> None:
        pass


@contextmanager
def _recorded_by(graph: _Graph, **_: object) -> Iterator[None]:
    for each in graph.generators:
        each.stuck = True  # type: ignore[attr-defined]
    yield
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")


def test_a_recording_without_memory_leaves_a_run_that_goes_on_with_the_same_numbers(
    quiet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own, spy = _Stuck(), _Spy()
    spy.generator, spy.device = _Stuck(), torch.device("cuda", 0)
    drawn: list[tuple[int, int]] = []

    def draws(draw: Draw, number: int) -> dict[str, torch.Tensor]:
        drawn.append((draw.rng(spy.generator).generator.initial_seed(), own.manual_seed(number).initial_seed()))
        return {}

    monkeypatch.setattr(spy, "take", draws)
    monkeypatch.setattr(spy, "descend", lambda *_, **__: {}, raising=False)
    for name, value in {
        "CUDAGraph": _Graph, "graph": _recorded_by, "default_generators": (own,), "current_stream": lambda _: None,
        "memory_reserved": lambda _: 0, "mem_get_info": lambda _: (2**40, 2**40), "empty_cache": lambda: None,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(torch, "Generator", lambda *_: _Stuck())
    step = RecordedStep(spy)  # type: ignore[arg-type]
    for number in range(WARM + 3):
        step.take(_draw(100 + number), number)
    assert drawn == [(100 + number, number) for number in range(WARM + 3)]
    assert step.failed
    assert step.words == "eager: CUDA out of memory. Tried to allocate 2.00 MiB."


def test_a_step_is_not_recorded_where_less_memory_is_free_than_it_takes(
    quiet: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = iter([5 * 2**20, 12 * 2**20])  # before and after the step that is measured
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: next(held))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (7 * 2**20, 2**30))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    spy = _Spy()
    step = RecordedStep(spy)  # type: ignore[arg-type]
    for number in range(WARM + 3):
        step.take(_draw(number), number)
    assert [each[0] for each in spy.taken] == ["eager"] * (WARM + 3)
    assert step.words == "eager: a recording needs 7 MiB of GPU memory, and 7 are free"


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
