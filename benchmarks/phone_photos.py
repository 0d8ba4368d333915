"""A folder of photos as large as a phone's, for ``first_run.py``: small pictures enlarged, with grain, so that they take a megabyte.

    python benchmarks/phone_photos.py PICTURES FOLDER [--count 2500] [--size 3000x2000]

PICTURES has a folder for each label. As many are taken of each label as of the others; FOLDER gets the same folders.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np
from PIL import Image, ImageChops

GRAIN, QUALITY = 5.0, 85  # standard deviation of grain in grey levels; of JPEG


@cache
def grain(size: tuple[int, int]) -> Image.Image:
    noise = np.random.default_rng(0).normal(128, GRAIN, (size[1], size[0]))
    return Image.fromarray(noise.clip(0, 255).astype(np.uint8)).convert("RGB")


def write(pair: tuple[Path, Path], size: tuple[int, int]) -> None:
    """Write one picture enlarged, its grain shifted by what it is called."""
    source, target = pair
    if target.exists():
        return
    with Image.open(source) as picture:
        large = picture.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    shift = sum(source.name.encode()) * 37
    grained = ImageChops.add(large, ImageChops.offset(grain(size), shift, shift // 3), 1, -128)
    target.parent.mkdir(parents=True, exist_ok=True)
    grained.save(target, "JPEG", quality=QUALITY)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=2500)
    parser.add_argument("--size", default="3000x2000")
    options = parser.parse_args()
    width, height = map(int, options.size.split("x"))
    labels = [sorted(each.glob("*.jpg")) for each in sorted(options.pictures.iterdir())]
    files = [file for file in chain.from_iterable(zip_longest(*labels)) if file][: options.count]
    pairs = [(file, options.folder / file.parent.name / file.name) for file in files]
    with ProcessPoolExecutor() as pool:
        list(pool.map(partial(write, size=(width, height)), pairs, chunksize=16))
    mega = sum(target.stat().st_size for _, target in pairs) / len(pairs) / 1e6
    print(f"{len(pairs)} photos of {mega:.2f} MB")


if __name__ == "__main__":
    main()
