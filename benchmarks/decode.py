"""Images a second from picture files to batches: ours against torch's plain DataLoader, in one run.

    python benchmarks/decode.py [--images 2000] [--size 224] [--json FILE]

Photographs of 500 x 375 pixels are made and written as JPEG first. The plain loader opens each picture with Pillow, resizes
its short side, cuts the centre and stacks floats, in as many worker processes as there are cores, every epoch anew. Ours
decodes once into a file (``data.disk``) and then reads batches of bytes from it. Both end in floats on the host.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from labelwise.images.file_images import FileImages
from labelwise.train.batches import Shard, ShuffledBatches
from labelwise.train.pixels import pixels
from labelwise.train.train_data import TensorSplit


class Plain(Dataset[Tensor]):
    """The obvious way."""

    def __init__(self, paths: list[Path], size: int) -> None:
        self.paths, self.size = paths, size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int) -> Tensor:
        image = Image.open(self.paths[row]).convert("RGB")
        scale = self.size / min(image.size)
        image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BILINEAR)
        left, top = (image.width - self.size) // 2, (image.height - self.size) // 2
        image = image.crop((left, top, left + self.size, top + self.size))
        return torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float() / 255


def photographs(folder: Path, n: int) -> list[Path]:
    """Write pictures with the detail of a photograph: smooth shapes and some noise."""
    made = np.random.default_rng(0)
    paths = []
    for i in range(n):
        small = made.integers(0, 256, (12, 16, 3), dtype=np.uint8)
        image = np.asarray(Image.fromarray(small).resize((500, 375), Image.Resampling.BICUBIC), np.int16)
        noisy = (image + made.normal(0, 6, image.shape)).clip(0, 255).astype(np.uint8)
        paths.append(folder / f"{i}.jpg")
        Image.fromarray(noisy).save(paths[-1], quality=90)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    with tempfile.TemporaryDirectory() as folder:
        paths = photographs(Path(folder), options.images)
        seconds = {}
        start = time.perf_counter()
        for batch in DataLoader(Plain(paths, options.size), batch_size=128, num_workers=cores):
            batch.sum()
        seconds["plain DataLoader, every epoch"] = time.perf_counter() - start
        start = time.perf_counter()
        images = pixels(FileImages(paths), (3, options.size, options.size))
        seconds["labelwise, decoding once"] = time.perf_counter() - start
        batches = ShuffledBatches(
            split=TensorSplit(images=images, targets=torch.zeros(len(images), dtype=torch.int64)), size=128
        )
        start = time.perf_counter()
        for draw in batches.epoch(0, 0, Shard()):
            batches.batch(draw.rows, draw.images, draw.rng(torch.Generator())).images.sum()
        seconds["labelwise, every epoch after that"] = time.perf_counter() - start
    base = seconds["plain DataLoader, every epoch"]
    print(
        f"{options.images} JPEG pictures of 500 x 375 to {options.size} x {options.size}, {cores} cores, torch {torch.__version__}"
    )
    for name, value in seconds.items():
        print(f"{name:36}{options.images / value:10.0f} images/s{base / value:8.1f} x")
    if options.json:
        options.json.write_text(json.dumps({"images": options.images, "seconds": seconds}, indent=1) + "\n")


if __name__ == "__main__":
    main()
