"""python classify.py owl.jpg ...: what each image shows, as JSON lines. Needs onnxruntime, pillow and numpy, not labelwise.

With --max-error 0.05, each answer is a label, a parent of labels, or "unsure", so that at most this share of images gets a wrong one.
"""

import argparse
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import: builds of ONNX Runtime report to Microsoft otherwise
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
LYING = (5, 6, 7, 8)  # EXIF orientations that swap width and height


def read(file: str, shape: list[int], fit: str) -> np.ndarray:
    """Return an image file as the model takes it: bytes [channels, height, width]."""
    channels, height, width = shape
    photo = Image.open(file)
    if photo.mode[0] in "IF":
        raise ValueError("it has more than 8 bits per channel. Save it with 8 bits.")
    side = max(height, width, 224)  # a large JPEG is decoded at a fraction of its size
    drafted = photo.draft("L" if channels == 1 else None, (side, side))
    full = drafted[1][2:] if drafted else photo.size
    full = full[::-1] if photo.getexif().get(0x0112) in LYING else full
    image: Image.Image = ImageOps.exif_transpose(photo)
    size, box = (width, height), (0.0, 0.0, *full)
    if fit.startswith("crop"):  # cover the frame and keep the centre
        scale = min(full[0] / width, full[1] / height)
        left, top = (round((length / scale - part) / 2) * scale for length, part in zip(full, size, strict=True))
        box = (left, top, min(left + width * scale, full[0]), min(top + height * scale, full[1]))
    kernel = Image.Resampling.BICUBIC if fit.endswith("bicubic") else Image.Resampling.BILINEAR
    if image.has_transparency_data:  # over white
        image = image.convert("RGBA").resize(size, kernel, box)
        image = Image.alpha_composite(Image.new("RGBA", size, "white"), image)
    else:
        plain = image if image.mode in ("L", "RGB") else image.convert("L" if image.mode == "1" else "RGB")
        image = plain.resize(size, kernel, box)
    pixels = np.asarray(image.convert("RGB" if channels == 3 else "L"))
    return pixels.transpose(2, 0, 1) if channels == 3 else pixels[None]


def limit(mistakes: list[float], max_error: float) -> float:
    """Return the probability above which answers are wrong for at most this share of images."""
    place = math.ceil((len(mistakes) + 1) * (1 - max_error) - 1e-5) - 1
    return mistakes[place] if place < len(mistakes) else math.inf


def coarser(chances: np.ndarray, paths: list[list[str]], least: float) -> tuple[list[str], float]:
    """Return the names from the broadest parent to the last step that is more probable than ``least``, and its probability."""
    inside, value = sorted(range(len(paths)), key=paths.__getitem__), 1.0
    answer: tuple[list[str], float] = ([], value)
    for step in range(1, max(map(len, paths)) + 1):
        groups: dict[tuple[tuple[str, ...], bool], list[int]] = {}
        for row in inside:
            groups.setdefault((tuple(paths[row][:step]), len(paths[row]) < step), []).append(row)
        (path, _), inside = max(groups.items(), key=lambda group: chances[group[1]].sum())
        value = min(value, float(chances[inside].sum()))
        if value <= least:
            break
        answer = (list(path), value)
    return answer


def label_set(chances: np.ndarray, unknown: bool, description: dict[str, Any], least: float) -> dict[str, Any]:
    """Return the answer to an image that keeps a promise."""
    path, value = coarser(chances, description["paths"], least)
    if unknown:
        return {"answer": "unknown", "parents": []}
    return {"answer": path[-1] if path else "unsure", "parents": path[-2::-1], "probability": value}


def main(words: list[str]) -> int:
    """Print the answer for each file; return 1 if one cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--max-error", type=float)
    options, unread = parser.parse_args(words), 0
    description = json.loads((HERE / "labels.json").read_text("utf-8"))
    least = None
    if options.max_error is not None:
        if description["mistakes"] is None or not 0 < options.max_error < 1:
            parser.error("--max-error must be between 0 and 1, and this classifier must be able to promise it")
        least = limit(description["mistakes"], options.max_error)
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])
    for file in options.files:
        try:
            image = read(file, description["shape"], description["fit"])[None]
        except Exception as error:  # Pillow raises many kinds
            unread = 1
            print(f"{file!a} is skipped: {error!a}", file=sys.stderr)
            continue
        answers, labels, unknown = session.run([description["reported"], "labels", "unknown"], {"images": image})
        names = [name for name, is_shown in zip(description["labels"], labels[0], strict=True) if is_shown]
        chances = dict(zip(description["labels"], answers[0].tolist(), strict=True))
        answer = {"file": file, "labels": names, "unknown": bool(unknown[0]), "probabilities": chances}
        if least is not None:
            answer |= label_set(answers[0], answer["unknown"], description, least)
        print(json.dumps(answer))
    return unread


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
