"""What a result was measured with: versions, commit, machine."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labelwise


def surroundings(device: torch.device) -> dict[str, Any]:
    """Return versions, the commit of a checkout, the device and the time, as plain values."""
    name = f"cuda: {torch.cuda.get_device_name(device)}" if device.type == "cuda" else device.type
    return {
        "commit": commit(),
        "versions": {
            "labelwise": labelwise.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "device": name,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


@cache
def commit() -> str:
    """Return the commit of the checkout that this package lies in; "" where it is installed, or git is not there."""
    here = Path(labelwise.__file__).parent
    listed = _git(here, "ls-files", "--error-unmatch", "__init__.py")
    return _git(here, "describe", "--always", "--dirty", "--abbrev=12") if listed else ""


def _git(folder: Path, *words: str) -> str:
    try:
        told = subprocess.run(["git", "--no-optional-locks", *words], cwd=folder, capture_output=True, text=True)
    except OSError:
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""
