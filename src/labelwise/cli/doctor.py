"""The verb doctor: what is installed and what this machine offers, as text for a bug report.

It holds no image, label, address or token, and shows the home folder as ``~``. Versions come from package metadata: torch is not imported.
"""

import os
import platform
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from labelwise import __file__ as package_file
from labelwise import __version__
from labelwise.cli.output import one_line, show
from labelwise.support.errors import listing
from labelwise.support.plugins import GROUP
from labelwise.support.processes import threads

NOT_FOR_USERS = ("dev", "docs", "bench")  # extras for work on labelwise itself
MAIN = ("numpy", "onnxruntime", "torch")
VARIABLES = ("CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "LABELWISE_CACHE_MB")
GPU_QUERY = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
SECONDS = 10  # to wait for the driver


def doctor() -> None:
    """Show versions, GPU, cache and limits for a bug report."""
    from labelwise.support.files import memory

    core, extras = _extras()
    cache = _cache()
    encoders = _encoders()
    document = {
        "labelwise": __version__,
        "folder": _display_path(Path(package_file).parent),
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: version_of(name) for name in MAIN} | core,
        "extras": extras,
        "gpus": _gpus(),
        "encoders": encoders,
        "plugins": _plugins(),
        "cache": cache,
        "cores": threads(),
        "memory_gb": round(memory() / 1e9, 1),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }
    problems = [f"{name} is missing. Install labelwise again." for name, version in core.items() if version is None]
    problems += [] if encoders else ["No encoder is installed. See: labelwise encoders"]
    problems += [] if cache["safe"] else ["Other users may write to the cache folder, so it is not used."]
    show(
        document | {"problems": problems},
        *map(one_line, _lines(document)),
        *(f"Problem: {problem}" for problem in problems),
    )


def version_of(package: str) -> str | None:
    """Return the version of an installed package, without importing it."""
    return next((distribution.version for distribution in metadata.distributions(name=package)), None)


def _extras() -> tuple[dict[str, str | None], dict[str, dict[str, str | None]]]:
    """Return the versions of what labelwise always needs, and of what each extra needs."""
    core: dict[str, str | None] = {}
    extras: dict[str, dict[str, str | None]] = {}
    distribution = next(iter(metadata.distributions(name="labelwise")), None)
    for line in (distribution.requires or []) if distribution else []:
        name = re.split(r"[ ;<>=!~\[(]", line)[0]
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if name == "labelwise" or (extra and extra[1] in NOT_FOR_USERS):
            continue
        (extras.setdefault(extra[1], {}) if extra else core)[name] = version_of(name)
    return core, extras


def _plugins() -> dict[str, str]:
    """Return the packages that add to labelwise, by the name of the plug-in."""
    entries = metadata.entry_points(group=GROUP)
    return {entry.name: f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.value for entry in entries}


def _gpus() -> list[str]:
    """Return name, memory and driver of each NVIDIA GPU."""
    if shutil.which(GPU_QUERY[0]) is None:
        return []
    try:
        process = subprocess.run(GPU_QUERY, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in process.stdout.splitlines() if line.strip()]


def _encoders() -> list[str]:
    from labelwise.encoders.choose import known_encoders

    return [encoder.name for encoder in known_encoders() if encoder.at_hand]


def _cache() -> dict[str, Any]:
    from labelwise.support.cache import Cache, is_on, is_own

    contents = Cache().contents()
    folder = contents.file.parent
    existing = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    return {
        "folder": _display_path(folder),
        "on": is_on(),
        "safe": is_own(folder),
        "megabytes": round(contents.megabytes, 1),
        "limit_megabytes": contents.limit,
        "images": sum(contents.encoders.values()),
        "free_gb": round(shutil.disk_usage(existing).free / 1e9, 1),
    }


def _display_path(path: Path) -> str:
    """Return a path with ``~`` for the home folder."""
    home = os.path.expanduser("~")
    return f"~/{path.relative_to(home).as_posix()}" if path.is_relative_to(home) else str(path)


def _lines(document: dict[str, Any]) -> list[str]:
    """Return the document as lines of text."""
    cache, versions = document["cache"], document["packages"]
    state = "" if cache["on"] else " (off)"
    rows = [
        ("labelwise", f"{document['labelwise']} in {document['folder']}"),
        ("Python", document["python"]),
        ("system", document["system"]),
        ("packages", ", ".join(f"{name} {version or 'not installed'}" for name, version in versions.items())),
        ("GPU", "; ".join(document["gpus"]) or "none found"),
        ("encoders", listing(document["encoders"]) if document["encoders"] else "none"),
        ("plug-ins", ", ".join(f"{name} ({by})" for name, by in document["plugins"].items()) or "none"),
        (
            "cache",
            f"{cache['folder']}{state}: {cache['megabytes']} of {cache['limit_megabytes']:.0f} MB, {cache['images']} images",
        ),
        (
            "limits",
            f"{document['cores']} cores, {document['memory_gb']} GB of memory, {cache['free_gb']} GB of disk free",
        ),
        ("variables", ", ".join(f"{name}={value}" for name, value in document["variables"].items()) or "none set"),
        *((f"extra {name}", _extra_words(some)) for name, some in document["extras"].items()),
    ]
    return [f"{name:<15} {words}" for name, words in rows]


def _extra_words(packages: dict[str, str | None]) -> str:
    missing = [name for name, version in packages.items() if version is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    return ", ".join(f"{name} {version}" for name, version in packages.items())
