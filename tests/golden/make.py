"""Write golden files anew: ``python -m tests.golden.make --verb classify``, ``--case api/softmax``, ``--all``.

``--data`` and ``--folders`` write the data and the kept classifiers themselves. They were written once, by the version of the
product whose answers are golden; do that again only for data or classifiers that are new, for the old ones show that what an earlier
version saved still loads.
"""

import argparse
import os
import shlex
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tests.golden import expected, outside
from tests.golden.cases import CASES, answer
from tests.golden.draw import draw
from tests.golden.fits import ENCODER, FOLDERS
from tests.golden.routes import teach_over_http


def make_folders(only: list[str]) -> None:
    """Fit and save the kept classifiers, all or only some."""
    with tempfile.TemporaryDirectory() as place, outside.sandbox(Path(place)):
        if not only:
            _run(f"{ENCODER} --out folders/encoder.safetensors --overwrite")
        for name, words in FOLDERS.items():
            if only and name not in only:
                continue
            shutil.rmtree(f"folders/{name}.lw", ignore_errors=True)
            _run(f"{words} --out folders/{name}.lw")
        if not only or "served" in only:
            teach_over_http()


def _run(words: str) -> None:
    done = outside.shell(*shlex.split(words))
    print(words, *done.get("printed", ()), sep="\n  ", flush=True)
    if done["exit"]:
        sys.exit(f"It failed: {done}")


def main() -> None:
    """Do what the options say."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--verb", action="append", default=[], help="a verb of the shell")
    options.add_argument("--case", action="append", default=[], help="a case or a kind of cases: fit/izf, route")
    options.add_argument("--all", action="store_true", help="every golden file")
    options.add_argument("--data", action="store_true", help="the data")
    options.add_argument("--folders", nargs="*", help="the kept classifiers, or those named")
    given = options.parse_args()
    torch.set_num_threads(1)
    if given.data:
        draw(outside.HERE / "data")
    if given.folders is not None:
        (outside.HERE / "folders").mkdir(exist_ok=True)
        make_folders(given.folders)
    asked = [*(f"verb/{verb}" for verb in given.verb), *given.case]
    chosen = [case for case in CASES if given.all or any(case == one or case.startswith(f"{one}/") for one in asked)]
    if asked and not chosen:
        sys.exit(f"No such case: {asked}. Cases: {', '.join(CASES)}.")
    for case in chosen:
        expected.write(case, expected.renewed(case, answer(case)))
        print(expected.path_of(case).relative_to(outside.HERE))


if __name__ == "__main__":
    main()
