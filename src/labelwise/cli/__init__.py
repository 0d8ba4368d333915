"""The command line: a file per verb, one of shared options, one that reads what verbs are given, one that prints results.

Nothing is imported here, so that plug-ins can share options and output, whichever of the two packages is imported first.
"""

import atexit
import os
import sys
from contextlib import suppress


def main() -> None:
    """Run the command line, see ``verbs.main``."""
    from labelwise.cli.verbs import main as run

    run()


def command() -> None:
    """Run the command line as a process of its own, which ends as soon as all is written.

    Python would take apart all that torch holds first, piece by piece: a third of a second, for memory that the system takes back as a whole.
    """
    from labelwise.cli.starting import spare_imports

    spare_imports()
    code = 1  # of an error that nobody caught

    def end() -> None:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # closed, or nobody listens any more
                stream.flush()
        os._exit(code)

    atexit.register(end)  # before all others, so that it is called last; threads have ended by then
    try:
        main()
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        raise
