"""Count the functions and files of labelwise that a command passes through: ``python tools/trace_calls.py classify birds.lw new.jpg``.

Functions that are called count, in all threads of the process; what an import runs and the bodies of classes do not, and what a
comprehension does belongs to its function. Before the command, ``--calls`` prints every function with the number of its calls.
What is printed goes to standard error, after the command's own output.
"""

import sys
import threading
from collections import Counter
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import labelwise

ROOT = f"{Path(labelwise.__file__).parent}/"
Call = tuple[str, str]  # of a file and a function


def importing(frame: FrameType) -> bool:
    """Return whether a module of labelwise is being imported."""
    above = frame.f_back
    while above is not None:
        if above.f_code.co_name == "<module>" and above.f_code.co_filename.startswith(ROOT):
            return True
        above = above.f_back
    return False


def traced() -> tuple[int, Counter[Call]]:
    """Run the command that the arguments name under a tracer; return its status and the calls."""
    from labelwise.cli import main as run

    calls: Counter[Call] = Counter()

    def trace(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(ROOT) or code.co_name.startswith("<"):
            return
        if code.co_flags & CO_OPTIMIZED and not importing(frame):
            calls[code.co_filename.removeprefix(ROOT), code.co_qualname] += 1

    threading.setprofile(trace)
    sys.setprofile(trace)
    try:
        sys.argv[0] = "labelwise"
        run()
    except SystemExit as stop:
        return int(stop.code or 0), calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return 0, calls


def main() -> int:
    """Run the command under a tracer and print the counts."""
    each = sys.argv[1:2] == ["--calls"]
    if each:
        del sys.argv[1]
    status, calls = traced()
    files = sorted({file for file, _ in calls})
    print(f"{len(calls)} functions in {len(files)} files", file=sys.stderr)
    for file in files:
        print(file, file=sys.stderr)
        own = sorted((name, count) for (where, name), count in calls.items() if where == file)
        for name, count in own if each else ():
            print(f"  {count:6} {name}", file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
