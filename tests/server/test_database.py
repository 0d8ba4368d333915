"""Several processes that teach, forget and undo in any order see one state, which is that of an obvious list of steps."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from labelwise.server.database import Database
from labelwise.server.lessons import UNDO, Lesson, State
from labelwise.server.records import Records


def lesson(label: str) -> Lesson:
    return Lesson(label=label, source="examples", examples=1, texts=(), content=save({"scale": torch.rand(1)}))


class Obvious:
    """All that was ever served, so that an undo goes back by one."""

    def __init__(self) -> None:
        self.served: list[tuple[list[str], list[str]]] = [([], [])]  # taught and forgotten labels
        self.undoable = 0

    def step(self, taught: list[str], forgotten: list[str]) -> None:
        self.served.append((taught, forgotten))
        self.undoable = min(UNDO, self.undoable + 1)

    def undo(self) -> None:
        self.served.pop()
        self.undoable -= 1


def seen(state: State) -> tuple[list[str], list[str], int, int]:
    return [one.label for one in state.taught], sorted(state.forgotten), len(state.undoable), state.change


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_steps(seed: int, tmp_path: Path) -> None:
    any_order(seed, lambda read_only: Database(tmp_path / "m.taught", "model", read_only=read_only))


def any_order(seed: int, begin: Callable[[bool], Records], steps: int = 300) -> None:
    """Teach, forget and undo in any order through several connections."""
    draw, obvious = random.Random(seed), Obvious()
    databases = [begin(i == 3) for i in range(4)]
    states = [State() for _ in databases]
    for number in range(1, steps + 1):
        i = draw.randrange(3)
        taught, forgotten = obvious.served[-1]
        with databases[i].transaction():
            before = databases[i].read(states[i])
            kind = draw.choice(("teach", "teach", "forget", "forget", "trained", "undo"))
            if kind == "undo" and obvious.undoable:
                after = before.undo()
                obvious.undo()
            elif kind == "forget" and taught:
                label = draw.choice(taught)
                after = before.forget(label)
                obvious.step([one for one in taught if one != label], forgotten)
            elif kind == "trained":
                after = before.forget(f"trained {number}")
                obvious.step(taught, sorted([*forgotten, f"trained {number}"]))
            else:
                after = before.teach(lesson(f"new {number}"))
                obvious.step([*taught, f"new {number}"], forgotten)
            databases[i].write(before, after)
        states[i] = after
        reader = draw.randrange(4)
        states[reader] = databases[reader].read(states[reader])
        wanted = (*obvious.served[-1], obvious.undoable, number)
        assert seen(after) == seen(states[reader]) == wanted
    again = begin(True)
    assert seen(again.read(State())) == wanted
    assert len(again.read(State()).changes) <= len(wanted[0]) + len(wanted[1]) + 2 * UNDO
    for one in (*databases, again):
        one.close()
