"""Looks at the files that verbs write: each has a title, and returns what it sees as plain values."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import labelwise as lw
from tests.golden import outside

Look = tuple[str, Callable[[], Any]]


def folder(path: str, data: str = "data/shapes.npz") -> Look:
    """Look at a saved classifier, and at what it says of some pictures."""

    def look() -> dict[str, Any]:
        classifier = lw.load(path)
        images, _ = outside.split_of(lw.data.load(data, size=8 if data == "data/described" else None), "test")
        scores = outside.raw_scores(classifier, images[:3])
        return outside.saved(Path(path)) | {"raw scores": scores, "log-odds": outside.log_odds(classifier, images[:3])}

    return f"folder {path}", look


def text(path: str) -> Look:
    """Look at a file of text."""
    return f"text {path}", lambda: Path(path).read_text(encoding="utf-8").splitlines()


def names(path: str) -> Look:
    """Look at which files a folder holds."""
    return f"files {path}", lambda: sorted(str(file.relative_to(path)) for file in Path(path).rglob("*"))


def arrays(path: str) -> Look:
    """Look at a file of numpy arrays."""

    def look() -> dict[str, Any]:
        with np.load(path, allow_pickle=False) as held:
            return {name: {"type": str(held[name].dtype), "values": held[name]} for name in held.files}

    return f"arrays {path}", look


def tensors(path: str) -> Look:
    """Look at a file of tensors: what it says of itself, and the shape and mean size of each."""

    def look() -> dict[str, Any]:
        from safetensors import safe_open

        with safe_open(path, "pt") as held:
            about = held.metadata() or {}
            found = {name: held.get_tensor(name).double() for name in sorted(held.keys())}
        sizes = {name: {"shape": list(x.shape), "size": float(x.abs().mean())} for name, x in found.items()}
        if "directions" in sizes:  # of a space in which no direction stands out: any turn of them is as good
            sizes["directions"].pop("size")
        return {"about": sorted(about), "tensors": sizes}

    return f"tensors {path}", look


def matrices(path: str) -> Look:
    """Look at a file of Matlab."""

    def look() -> dict[str, Any]:
        from scipy.io import loadmat

        held = {name: x for name, x in loadmat(path).items() if not name.startswith("__")}
        return {
            name: x.tolist() if x.dtype.kind in "iuf" else [str(each[0][0]) for each in x] for name, x in held.items()
        }

    return f"matrices {path}", look


def picture(path: str) -> Look:
    """Look at a picture: its size and mean colour, for people the rest."""

    def look() -> dict[str, Any]:
        from PIL import Image

        with Image.open(path) as one:
            pixels = np.asarray(one.convert("RGB"), dtype=float)
        return {"size": list(pixels.shape), "colour": [round(x) for x in pixels.mean((0, 1))]}

    return f"picture {path}", look


def network(path: str) -> Look:
    """Look at an ONNX file through ONNX Runtime."""

    def look() -> dict[str, Any]:
        import onnxruntime

        session = onnxruntime.InferenceSession(path)
        images = outside.split_of(lw.data.load("data/shapes.npz"), "test")[0][:2].numpy()
        given = {session.get_inputs()[0].name: images}
        made = zip(session.get_outputs(), session.run(None, given), strict=True)
        return {"takes": [one.name for one in session.get_inputs()], "makes": {one.name: value for one, value in made}}

    return f"network {path}", look
