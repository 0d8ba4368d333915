"""Every case: a name, which is that of its golden file, and what is asked of the product."""

import shlex
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import labelwise as lw
from tests.golden import answers, outside, routes, verbs
from tests.golden.fits import DATA, FITS


def fit(name: str) -> dict[str, Any]:
    """Return how a short run ends: what it says, what it saves and the scores of test images."""
    done = outside.shell(*shlex.split(f"{FITS[name]} --out fitted.lw --json"))
    data = lw.data.load(DATA[name], size=8 if DATA[name] == "data/described" else None)
    scores = outside.raw_scores(lw.load("fitted.lw"), outside.split_of(data, "test")[0][:8])
    return outside.plain({"run": done, "saved": outside.saved(Path("fitted.lw")), "raw scores": scores})  # type: ignore[no-any-return]


def fit_in_python() -> dict[str, Any]:
    """Return how a short run ends that is started from Python, on a set that is read and on arrays."""
    read = lw.data.load("data/shapes.npz")
    images, truth = outside.split_of(read, "train")
    given = lw.data.arrays(images, truth, names=read.labels.names, seed=1)
    method = lw.methods.Softmax(encoder=lw.methods.Encoder(width=3), epochs=2, batch=12)
    found = {}
    for name, data in (("read", read), ("arrays", given)):
        classifier = lw.fit(data, method, lw.Run(seed=3, device="cpu"))
        shown = outside.split_of(data, "test")[0][:4]
        found[name] = {
            "raw scores": outside.raw_scores(classifier, shown),
            "log-odds": outside.log_odds(classifier, shown),
        }
    return outside.plain(found)  # type: ignore[no-any-return]


CASES: dict[str, Callable[[], Any]] = {
    "api/data": answers.read_all,
    **{f"api/{name}": partial(answers.ask, name) for name in DATA},
    **{f"verb/{verb.replace(' ', '-')}": partial(verbs.run, verb) for verb in verbs.VERBS},
    **{f"route/{name}": partial(routes.talk, name) for name in routes.TALKS},
    "fit/python": fit_in_python,
    **{f"fit/{name}": partial(fit, name) for name in FITS},
}


def answer(case: str) -> Any:
    """Return what the product answers to a case, asked in a folder of its own."""
    with tempfile.TemporaryDirectory() as place, outside.sandbox(Path(place)):
        return CASES[case]()
