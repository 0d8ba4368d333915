"""All that golden tests touch of the product: the shell, the service, ``import labelwise`` and saved folders.

Nothing else of the package is imported, so that modules may move and be rewritten. Where an attribute of a public object is
read (the raw scores of a classifier, the truth of a split), it is read here and nowhere else: this is the one file to change when such a
name changes on purpose.
"""

import dataclasses
import json
import logging
import os
import re
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from safetensors import safe_open
from torch import Tensor

import labelwise as lw

HERE = Path(__file__).resolve().parent
MEASURED = frozenset({"seconds", "images_per_second", "milliseconds", "megabytes", "difference", "rounds", "threads"})
ELSEWHERE = frozenset({"torch", "encoder_runtime", "runtime"})  # texts that depend on what the machine computes with
OUTSIDE = ("LABELWISE_DATA", "LABELWISE_TOKEN", "LABELWISE_MEMORY_MB")  # what a machine may set
SHELL = {"COLUMNS": "200", "LABELWISE_CACHE": "off"}  # the user's own cache is neither read nor filled


@contextmanager
def sandbox(folder: Path) -> Iterator[None]:
    """Work in a folder in which the golden data and classifiers are at hand as ``data`` and ``folders``."""
    before = Path.cwd()
    for name in ("data", "folders"):
        (folder / name).symlink_to(HERE / name)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def shell(*words: str) -> dict[str, Any]:
    """Return what ``python -m labelwise WORDS`` does in this process: exit code, JSON document or text, notes."""
    out, err, code = StringIO(), StringIO(), 0
    surroundings = {key: value for key, value in os.environ.items() if key not in OUTSIDE} | SHELL
    with (
        patch.dict(os.environ, surroundings, clear=True),
        patch.object(sys, "argv", ["labelwise", *words]),
        patch("torch.cuda.is_available", return_value=False),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            runpy.run_module("labelwise", run_name="__main__", alter_sys=True)
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    done: dict[str, Any] = {"exit": code}
    if "--json" in words and not code:
        done["json"] = json.loads(out.getvalue())
    elif out.getvalue():
        done["printed"] = lines(out.getvalue())
    return done | ({"notes": lines(err.getvalue())} if err.getvalue() else {})


def service(words: list[str], talk: Callable[[Any], Any]) -> Any:
    """Return what ``talk`` returns, given a client of the service that ``labelwise serve WORDS`` starts in this process."""
    import uvicorn
    from starlette.testclient import TestClient

    said: list[Any] = []

    async def serve(server: uvicorn.Server, sockets: Any = None) -> None:
        with TestClient(server.config.app, base_url="http://127.0.0.1:8000") as client:  # type: ignore[arg-type]
            said.append(talk(client))

    with patch.object(uvicorn.Server, "serve", serve), _process_kept():
        done = shell("serve", *words, "--port", "0", "--device", "cpu")
    if not said:
        raise AssertionError(f"labelwise serve {' '.join(words)} did not serve: {done}")
    return said[0]


@contextmanager
def _process_kept() -> Iterator[None]:
    """Undo what a service does to the process that it takes for its own: where its log goes, how often threads take turns."""
    turns = sys.getswitchinterval()
    before = {log.name: (log.handlers[:], log.propagate, log.level) for log in _logs()}
    try:
        yield
    finally:
        sys.setswitchinterval(turns)
        for log in _logs():
            log.handlers[:], log.propagate, level = before.get(log.name, ([], True, logging.NOTSET))
            log.setLevel(level)


def _logs() -> list[logging.Logger]:
    """Return the loggers of the product, so far."""
    known = logging.root.manager.loggerDict.values()
    return [log for log in known if isinstance(log, logging.Logger) and log.name.startswith("labelwise")]


def options_of(verb: str) -> list[str]:
    """Return which options and verbs the help of a verb names; its layout is not ours."""
    shown = shell(*verb.split(), "--help")["printed"]
    named = re.findall(r"(?<=[│ ])--?[a-z][a-z-]*|(?<=^│ )[a-z][a-z-]+(?=  )", "\n".join(shown), re.MULTILINE)
    return sorted(set(named))


def lines(text: str) -> list[str]:
    """Return the lines of a text, without blanks at their ends and between columns of a table."""
    return [re.sub(r" {2,}", "  ", line.rstrip()) for line in text.splitlines() if line.strip()]


def embeddings(classifier: Any, images: Tensor) -> Any:
    """Return the embeddings of images ``[n, d]``."""
    return classifier.encode(images)


def raw_scores(classifier: Any, images: Tensor) -> Any:
    """Return the scores of the head itself ``[n, k]``, before calibration."""
    return classifier.scores(images).raw


def log_odds(classifier: Any, images: Tensor) -> Tensor:
    """Return calibrated scores ``[n, k]``."""
    return torch.as_tensor(classifier.scores(images).log_odds)


def split_of(data: Any, name: str) -> tuple[Tensor, Tensor]:
    """Return the images of a split and what is true of them: positions ``[n]``, or yes and no ``[n, k]``."""
    part = data.splits[name]
    images = np.stack(part.images.read(range(len(part)), part.images.shape))
    return torch.from_numpy(images), torch.as_tensor(part.targets)


def described(data: Any) -> dict[str, Any]:
    """Return all that there is to know of a data set."""
    found: dict[str, Any] = {"name": data.name, "labels": labels_of(data.labels), "skipped": plain(data.skipped)}
    for name, part in data.splits.items():
        images, truth = split_of(data, name)
        rows = images.double().flatten(1)
        about = {what: list(getattr(part, what)) for what in ("files", "texts", "domains", "groups")}
        numbers = {"shape": list(images.shape), "type": str(images.dtype), "means": rows.mean(1), "truth": truth}
        found[name] = plain(numbers | {"first": rows[0, :8]} | {what: told for what, told in about.items() if told})
    return found


def labels_of(labels: Any) -> dict[str, Any]:
    """Return what is known of labels."""
    pieces = ("names", "vectors", "texts", "order", "shares", "similarity")
    return {piece: plain(getattr(labels, piece)) for piece in pieces if getattr(labels, piece) is not None}


def saved(folder: Path) -> dict[str, Any]:
    """Return what lies in the folder of a saved classifier: files, the JSON document, names and shapes of tensors."""
    with safe_open(folder / "weights.safetensors", "pt") as weights:
        tensors = {name: list(weights.get_slice(name).get_shape()) for name in sorted(weights.keys())}
    about = json.loads((folder / "classifier.json").read_text())
    about["versions"], about["files"] = sorted(about["versions"]), sorted(about["files"])
    about.pop("checksum")
    about["encoder"].pop("id")  # the digest of an encoder that this machine trained
    files = sorted(str(file.relative_to(folder)) for file in folder.rglob("*"))
    found = {"files": files, "about": plain(about), "tensors": tensors}
    log = folder / "log.jsonl"
    return found | ({"log": [plain(json.loads(line)) for line in log.read_text().splitlines()]} if log.exists() else {})


def refusal(question: Callable[[], Any]) -> Any:
    """Return the answer to a question, or which error says that it cannot be answered; the words may change."""
    try:
        return plain(question())
    except Exception as error:
        if type(error).__module__ != "labelwise.support.errors":
            raise
        return {"refused": type(error).__name__}


def plain(value: Any, key: str = "") -> Any:
    """Return any answer as JSON values: numbers of seven digits, what is measured or depends on the place left out."""
    if key in MEASURED and isinstance(value, int | float):
        return "<measured>"
    if isinstance(value, float | np.floating):
        return float(f"{value:.7g}")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str | Path):
        return "<any>" if key in ELSEWHERE else _placeless(str(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name), each.name) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(name): plain(each, str(name)) for name, each in value.items()}
    if isinstance(value, Tensor | np.ndarray):
        return plain(value.tolist(), key)
    if isinstance(value, set | frozenset):
        return sorted(plain(each) for each in value)
    if isinstance(value, list | tuple):
        return [plain(each, key) for each in value]
    raise TypeError(f"{type(value)} is no answer that golden files hold.")


def _placeless(text: str) -> str:
    """Return a text without where on this machine the test ran, and without the version."""
    for place in (str(HERE), str(Path.cwd().resolve()), str(Path.cwd())):
        text = text.replace(f"{place}/", "")
    return text.replace(lw.__version__, "<version>")
