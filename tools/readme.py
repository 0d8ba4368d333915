"""Run every command of the README's block "In the shell" on small drawn data, and say which do not end as they should.

    python tools/readme.py [FOLDER] [--only fit,classify]

FOLDER, which must not exist, gets the data (a folder with a blank in its name by default): drawn birds under the names that the README uses, with sentences;
the same with attributes, for `izf`; grades in order. Each command is typed as it stands there, less the comment, in the folder whose
`birds.lw` can do it. Not a test: it takes minutes.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from torch import Tensor

import labelwise as lw

ROOT = Path(__file__).parents[1]
LABELWISE = f"{sys.executable} -m labelwise"
NAMES = ("barn owl", "robin", "wren", "goldcrest")  # of the first drawn species
EACH = 14  # pictures of each
DESCRIBED = {"imagine", "data zero-shot"}  # verbs that ask for attributes
SECONDS = 300  # that a command may take


def commands() -> list[str]:
    """Return the commands of the README, without their comments."""
    block = re.search(r"## In the shell\n+```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert block is not None
    return [line.split("  #")[0].strip() for line in block[1].splitlines()]


def write_pictures(images: Tensor, folder: Path) -> None:
    """Write images ``[n, 3, h, w]`` as JPEG files."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(folder / f"{number}.jpg", quality=95)


def write_data(home: Path) -> None:
    """Write what the commands name: birds with sentences, and what else is asked about."""
    data = lw.data.finches(per_species=30)
    pool = data.split("train").join(data.split("test"))
    own = {i: pool.images[(pool.targets == i).nonzero()[:, 0]] for i in range(8)}
    for place in (home, home / "attributes"):
        for i, name in enumerate(NAMES):
            write_pictures(own[i][:EACH], place / "birds" / name)
    known, vectors = data.labels.texts, data.labels.vectors
    assert known is not None
    assert vectors is not None
    texts = [f'{name},"{" ".join(known[i]).replace(chr(34), "")}"' for i, name in enumerate(NAMES)]
    (home / "birds" / "labels.csv").write_text("\n".join(["label,text", *texts]) + "\n")
    head = ",".join(["label", *(f"a{j}" for j in range(vectors.shape[1]))])
    rows = [",".join([name, *(f"{v:g}" for v in vectors[i].tolist())]) for i, name in enumerate([*NAMES, "unseen"])]
    for file in (home / "attributes" / "birds" / "labels.csv", home / "attributes" / "a.csv"):
        file.write_text("\n".join([head, *rows]) + "\n")
    for folder, species in (("new", 0), ("okapi", 5), ("inbox", 6), ("photos", 1), ("pictures", 2), ("other", 7)):
        write_pictures(own[species][EACH : EACH + 6] if species < len(NAMES) else own[species][:6], home / folder)
    write_pictures(own[4][:12], home / "pictures")
    for file_name, species in (("a", 0), ("b", 1), ("photo", 0)):
        Image.fromarray(own[species][-1].permute(1, 2, 0).numpy()).save(home / f"{file_name}.jpg")
    for i, grade in enumerate(("poor", "fair", "good")):
        write_pictures(own[i][:EACH], home / "grades" / grade)
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
    before = [
        ("labelwise fit grades --out grades.lw", home),
        ("labelwise fit birds --method izf --out birds.lw", home / "attributes"),
    ]
    block = [
        (command, home / "attributes" if any(f"labelwise {verb} " in command for verb in DESCRIBED) else home)
        for command in commands()
    ]
    wanted = {*options.only.split(","), "fit"} if options.only else set()
    wrong = 0
    for command, place in (*before, *block):
        if wanted and command.split()[1] not in wanted:
            continue
        code, seconds, said = run(command, place)
        wrong += code != 0
        print(f"{code:3} {seconds:6.1f} s  {command}", *([said] if code else []), sep="\n" if code else "", flush=True)
    print(f"{wrong} commands failed." if wrong else "All commands ended as they should.")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
