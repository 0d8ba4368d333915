"""A command of the shell starts sooner: what imports make is not looked through for garbage."""

import gc
import os
import threading
import time

CALM = 5.0  # seconds from the start of a command until unused cycles of objects are collected, as always from then on


def spare_imports() -> threading.Thread:
    """Begin a process without a collection of cycles, and return the thread that turns it on again.

    All that imports make stays, so to look through it again and again takes a seventh of the import of torch and finds nothing.
    """
    gc.disable()
    os.register_at_fork(after_in_child=gc.enable)  # which has no such thread
    thread = threading.Thread(target=_resume, name="garbage", daemon=True)
    thread.start()
    return thread


def _resume() -> None:
    time.sleep(CALM)
    gc.enable()
