"""Run every command of the block in docs/commands.md on small drawn data, and print which ones fail.

    python tools/readme.py [FOLDER] [--only fit,classify]

FOLDER, which must not exist, gets the data (a folder with a space in its name by default): drawn birds under the names that the page uses, and
grades in order. Commands run without their comments. Not a test: it takes minutes.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

import labelwise as lw
from labelwise.images.images import Array, read_all

ROOT = Path(__file__).parents[1]
LABELWISE = f"{sys.executable} -m labelwise"
NAMES = ("barn owl", "robin", "wren", "goldcrest")  # of the first drawn species
EACH = 14  # images of each
SECONDS = 300  # that a command may take


def commands() -> list[str]:
    """Return the commands of the page, without their comments."""
    block = re.search(r"```\n(.*?)```", (ROOT / "docs" / "commands.md").read_text(), re.DOTALL)
    assert block is not None
    return [line.split("  #")[0].strip() for line in block[1].splitlines()]


def write_images(images: Array, folder: Path) -> None:
    """Write images ``[n, 3, h, w]`` as JPEG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        Image.fromarray(image.transpose(1, 2, 0)).save(folder / f"{number}.jpg", quality=95)


def write_data(home: Path) -> None:
    """Write what the commands name: birds, and what else is asked about."""
    data = lw.data.finches(per_species=30)
    pool = data.split("train").join(data.split("test"))
    own = {i: read_all(pool.images.select(np.flatnonzero(pool.targets == i)), pool.shape or ()) for i in range(8)}
    for i, name in enumerate(NAMES):
        write_images(own[i][:EACH], home / "birds" / name)
    for folder, species in (("new", 0), ("okapi", 5), ("inbox", 6), ("photos", 1), ("photos/more", 4), ("other", 7)):
        write_images(own[species][EACH : EACH + 6], home / folder)
    for file_name, species in (("a", 0), ("b", 1), ("photo", 0)):
        write_images(own[species][-1:], home)
        (home / "0.jpg").rename(home / f"{file_name}.jpg")
    for i, grade in enumerate(("poor", "fair", "good")):
        write_images(own[i][:EACH], home / "grades" / grade)
    (home / "grades" / "order.txt").write_text("poor\nfair\ngood\n")


def run(command: str, place: Path) -> tuple[int, float, str]:
    """Return how a command ended, how long it took and the end of what it said; a service is asked to stop once it answers."""
    begun, words = time.time(), command.replace("labelwise", LABELWISE, 1)
    serves = command.startswith("labelwise serve")
    process = subprocess.Popen(
        f"exec {words}{' --port 0' if serves else ''}",
        shell=True,
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    if serves:
        while line := process.stdout.readline():
            said += line
            if "http://" in line:
                process.send_signal(signal.SIGINT)
                break
    try:
        rest, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        rest = f"takes more than {SECONDS} s"
    code = 0 if serves and process.returncode == 130 else process.returncode
    return code, time.time() - begun, (said + rest).strip()[-600:]


def main() -> None:
    """Write the data, and try the commands one after another."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="where to write; a temporary folder if left out")
    parser.add_argument("--only", default="", help="verbs to try, beside those that they need")
    options = parser.parse_args()
    home = options.folder or Path(tempfile.mkdtemp()) / "read me"
    home.mkdir(parents=True)
    write_data(home)
    wanted = {*options.only.split(","), "fit"} if options.only else set()
    wrong = 0
    for command in ("labelwise fit grades --out grades.lw", *commands()):
        if wanted and command.split()[1] not in wanted:
            continue
        code, seconds, said = run(command, home)
        wrong += code != 0
        print(f"{code:3} {seconds:6.1f} s  {command}", *([said] if code else []), sep="\n" if code else "", flush=True)
    print(f"{wrong} commands failed." if wrong else "All commands ended as they should.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
