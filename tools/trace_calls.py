"""Count the functions and files of labelwise that a command passes through: ``python tools/trace_calls.py classify birds.lw new.jpg``.

Calls in all threads of the process count. What is printed goes to standard error, after the command's own output.
"""

import sys
import threading
from pathlib import Path
from types import FrameType

import labelwise

ROOT = f"{Path(labelwise.__file__).parent}/"


def main() -> int:
    """Run the command under a tracer and print the counts."""
    calls: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT) and code.co_name != "<module>":
            calls.add((code.co_filename, code.co_firstlineno))

    from labelwise.cli import main as run

    threading.setprofile(trace)
    sys.setprofile(trace)
    status = 0
    try:
        sys.argv[0] = "labelwise"
        run()
    except SystemExit as stop:
        status = int(stop.code or 0)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    files = sorted({Path(name).relative_to(ROOT).as_posix() for name, _ in calls})
    print(f"{len(calls)} functions in {len(files)} files", file=sys.stderr)
    print("\n".join(files), file=sys.stderr)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
