"""Kill a labelling service by SIGKILL while it takes answers, and count acknowledged answers that are lost.

    python benchmarks/label_kills.py --kills 20

Each round starts ``labelwise label`` on the same project, sends answers over HTTP, and kills the process at a random moment. At the end the project
is opened and every acknowledged answer is looked for.
"""

import argparse
import http.client
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image

from labelwise.server.labelling.project import open_project

PHOTOS, LONGEST = 60, 1.5  # photos, and seconds of answers before a kill


def draw(folder: Path) -> None:
    """Draw photos of three colours."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    for row in range(PHOTOS):
        pixels = generator.integers(0, 60, (32, 32, 3)) + np.eye(3, dtype=int)[row % 3] * 190
        Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{row}.png")


def answer_until_killed(project: Path, photos: Path, first: int, wait: float) -> int:
    """Return the number of the last acknowledged answer and one more."""
    command = [sys.executable, "-m", "labelwise", "label", str(photos), "--out", str(project), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        address = next(found[0] for line in process.stderr if (found := re.search(r"http://[\d.]+:\d+", line)))
        threading.Thread(target=process.stderr.read, daemon=True).start()
        threading.Timer(wait, process.kill).start()
        try:
            while True:
                action = {"kind": "name", "rows": [first % PHOTOS], "label": f"label {first}"}
                body = json.dumps({"actions": [action]}).encode()
                request = urllib.request.Request(f"{address}/actions", body, {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=60) as reply:
                    reply.read()
                first += 1
        except (OSError, http.client.HTTPException):
            process.kill()
    return first


def main() -> None:
    """Print what was acknowledged and what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    generator, began = np.random.default_rng(options.seed), time.monotonic()
    acknowledged, first, lost = set[str](), 0, 0
    with tempfile.TemporaryDirectory() as place:
        photos, project = Path(place, "some photos"), Path(place, "project")
        draw(photos)
        for _ in range(options.kills):
            end = answer_until_killed(project, photos, first, float(generator.uniform(0.05, LONGEST)))
            acknowledged |= {f"label {number}" for number in range(first, end)}
            first = end + 1  # the answer in flight may be there or not
            with open_project(project, None, tell=lambda _: None) as opened:
                lost = len(acknowledged - {action.label for action in opened.session.actions})
        print(
            f"{options.kills} kills, {len(acknowledged)} acknowledged answers, {lost} lost, {time.monotonic() - began:.0f} s"
        )


if __name__ == "__main__":
    main()
