"""python classify.py owl.jpg ...: what each image shows, as JSON lines. Needs onnxruntime, pillow and numpy, not labelwise."""

import json
import os
import sys
from pathlib import Path

os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # before the import: builds of ONNX Runtime report to Microsoft otherwise
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

HERE = Path(__file__).resolve().parent
LYING = (5, 6, 7, 8)  # EXIF orientations that swap width and height


def read(file: str, shape: list[int], fit: str) -> np.ndarray:
    """Return an image file as the model takes it: bytes [channels, height, width]."""
    channels, height, width = shape
    opened = Image.open(file)
    if opened.mode[0] in "IF":
        raise ValueError("it has more than 8 bits per channel. Save it with 8 bits.")
    side = max(height, width, 224)  # a large JPEG is decoded at a fraction of its size
    drafted = opened.draft("L" if channels == 1 else None, (side, side))
    full = drafted[1][2:] if drafted else opened.size
    full = full[::-1] if opened.getexif().get(0x0112) in LYING else full
    image: Image.Image = ImageOps.exif_transpose(opened)
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


def main(files: list[str]) -> int:
    """Print the answer for each file; return 1 if one cannot be read."""
    unread = 0
    about = json.loads((HERE / "labels.json").read_text("utf-8"))
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])
    for file in files:
        try:
            image = read(file, about["shape"], about["fit"])[None]
        except Exception as error:  # Pillow raises many kinds
            unread = 1
            print(f"{file!a} is skipped: {error!a}", file=sys.stderr)
            continue
        answers, labels, unknown = session.run([about["reported"], "labels", "unknown"], {"images": image})
        names = [name for name, yes in zip(about["labels"], labels[0], strict=True) if yes]
        chances = dict(zip(about["labels"], answers[0].tolist(), strict=True))
        print(json.dumps({"file": file, "labels": names, "unknown": bool(unknown[0]), "probabilities": chances}))
    return unread


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
