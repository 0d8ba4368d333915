"""Loads saved classifiers with every number of their description changed; run as a process of its own, to measure its memory.

Prints as JSON: what went wrong, how many changes were refused, how many megabytes that took at most beyond what loading the
classifiers themselves takes, and which modules of torch's compiler loading them imported.
"""

import json
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import labelwise.core.store  # noqa: F401 - imported before anything is measured
from labelwise.core.classifier import Classifier
from labelwise.core.store import ABOUT, load
from labelwise.support.errors import LabelwiseError
from labelwise.train.model import check_shape
from tests.changed import description, model_of

VALUES = (-1, 2048, 10**9)
TRAINING = ("adversarial", "augment", "encoder_optimizer", "head_optimizer", "optimizer", "schedule")  # tried once
ADDRESSES = 3 * 2**30  # what the process may map beyond what it has; without, a mistake could stop the machine


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every number, and of every setting that may be one."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for key, part in enumerate(value[:3]):
            yield from places(part, (*path, key))
    elif value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        yield path


def changed(about: dict[str, Any], path: tuple[Any, ...], value: object) -> str:
    document: Any = json.loads(json.dumps(about))
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return json.dumps(document)


def outcome(folder: Path, classifier: Classifier, images: torch.Tensor) -> str:
    """Return ``refused``, ``harmless`` where the answers stay, or what else happened."""
    try:
        again = load(folder)
        check_shape(images, again.shape)  # pictures of another shape would be resized
        same = np.array_equal(again.scores(images).log_odds, classifier.scores(images).log_odds)
    except LabelwiseError:
        return "refused"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "harmless" if same else "another answer"


def megabytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main(folders: list[Path]) -> None:
    before = set(sys.modules)
    classifiers = [load(folder) for folder in folders]
    imported = sorted(name for name in set(sys.modules) - before if name.startswith(("sympy", "torch._refs")))
    shapes = [model_of(classifier).spec.shape for classifier in classifiers]
    images = [torch.rand(2, *shape, generator=torch.Generator().manual_seed(0)) for shape in shapes]
    for classifier, some in zip(classifiers, images, strict=True):
        assert np.isfinite(classifier.scores(some).log_odds).all()
    size, start = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize(), megabytes()
    resource.setrlimit(resource.RLIMIT_AS, (size + ADDRESSES, resource.getrlimit(resource.RLIMIT_AS)[1]))
    wrong, refused = [], 0
    for folder, classifier, some in zip(folders, classifiers, images, strict=True):
        text = (folder / ABOUT).read_text()
        about = description(folder)
        parts = {name: about[name] for name in about if name not in ("summary", "versions", "weights_sha256")}
        for path in places(parts):
            for value in VALUES if folder is folders[0] or path[2:3] not in [(name,) for name in TRAINING] else ():
                (folder / ABOUT).write_text(changed(about, path, value))
                found = outcome(folder, classifier, some)
                refused += found == "refused"
                if found not in ("refused", "harmless") and path[-1] != "power":  # the power of features is no size
                    wrong.append(f"{folder.name}: {'.'.join(map(str, path))} = {value}: {found}")
        (folder / ABOUT).write_text(text)
    print(json.dumps({"wrong": wrong, "refused": refused, "megabytes": megabytes() - start, "imported": imported}))


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
