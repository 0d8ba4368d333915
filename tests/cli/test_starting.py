"""How a command starts: imports are not looked through for garbage; what comes after them is, also in a process that was forked."""

import subprocess
import sys

COLLECTS = """
import gc, os
from labelwise.cli import starting

starting.CALM = 0.2
thread = starting.spare_imports()
first = gc.isenabled()
child = os.fork()
if not child:
    os._exit(gc.isenabled())
in_child = bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
print(first, in_child, gc.isenabled())
"""
COMMAND = """
import gc, sys
import labelwise.cli

labelwise.cli.main = lambda: print(gc.isenabled())
labelwise.cli.command()
"""


def said(words: str) -> str:
    """Return what a process of its own prints, which ends without torch."""
    return subprocess.run([sys.executable, "-c", words], check=True, capture_output=True, text=True).stdout


def test_cycles_are_collected_but_for_the_first_seconds() -> None:
    assert said(COLLECTS).split() == ["False", "True", "True"]


def test_a_command_begins_so() -> None:
    assert said(COMMAND).split() == ["False"]
