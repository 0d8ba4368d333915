"""A closed-form classifier on a frozen encoder that answers without torch, whose import takes longer than all the rest.

Whoever saved or opened such a classifier the ordinary way leaves the graph of its encoder in the user's cache, under what its
description says to the byte. With that, numpy and ONNX Runtime give the same answers to 1e-4, by the same formulas
(``ops.arrays``). Whatever is missing or differs is left to the ordinary way, which makes it anew or says what is wrong.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from labelwise.core.arrays import linear_scores, mean_distances, root_features, unit_rows
from labelwise.core.calibration import Calibration
from labelwise.core.description import ABOUT
from labelwise.core.familiarity import Familiarity, OutlierRule
from labelwise.core.scores import Scores
from labelwise.encoders.runtime import session
from labelwise.images.describe.labels import Labels
from labelwise.images.view import View
from labelwise.support.cache import QUICK, Cache, digest, is_on
from labelwise.support.files import read_json_bytes
from labelwise.support.limits import check_size
from labelwise.support.settings import from_plain

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier

WEIGHTS = "weights.safetensors"
MOST = 64  # pictures for which this way is taken: of more the ordinary one keeps features, and torch's import is the smaller part
PART = 0.1  # of the cache that a graph may take
MODEL = ("root", "centre", "sharpness", "rooted", "encoder.mean", "encoder.std")

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, kw_only=True)
class QuickClassifier:
    """What ``classify`` asks of a ``Classifier``; its numbers are numpy's arrays."""

    labels: Labels
    calibration: Calibration
    familiarity: Familiarity
    shape: tuple[int, ...]
    view: View
    network: Callable[[Array], Array]  # from normalised images [n, c, h, w] to features [n, d]
    label_embeddings: Array  # [k, d + 1]
    model: Mapping[str, Array]  # the state of a `DiscriminantModel`, as far as answers need it

    def scores(self, images: Array) -> Scores:
        """Return the scores of images (bytes ``[n, c, h, w]``), see ``Classifier.scores``; one length of features is as good as another."""
        embeddings = np.concatenate([self._encoded(image[None]) for image in images])
        raw = linear_scores(embeddings, self.label_embeddings)
        far = mean_distances(embeddings, raw, *(self.model[name] for name in ("centre", "root", "sharpness")))
        numbers: Any = embeddings
        classifier: Any = self
        scores = Scores(classifier, numbers)
        vars(scores).update(raw=raw, distances=far)
        return scores

    def _encoded(self, image: Array) -> Array:
        """Return the embedding ``[1, d]`` of an image."""
        mean, std = (self.model[f"encoder.{name}"][:, None, None] for name in ("mean", "std"))
        x = (image.astype(np.float32) / np.float32(255) - mean) / std
        features = self.network(x)
        if self.view.mirror:
            features = (features + self.network(np.ascontiguousarray(x[..., ::-1]))) / 2
        return root_features(features) if self.model["rooted"] > 0 else unit_rows(features)


def open_quick(folder: Path) -> QuickClassifier | None:
    """Return the classifier saved in a folder; None where it must be opened the ordinary way, or torch is there anyhow."""
    if "torch" in sys.modules or not is_on() or find_spec("onnxruntime") is None:
        return None
    try:
        return _opened(folder)
    except Exception:  # whatever is wrong with a folder, the ordinary way says it better
        return None


def _opened(folder: Path) -> QuickClassifier | None:
    check_size(folder / WEIGHTS, (folder / WEIGHTS).stat().st_size)
    text = read_json_bytes(folder / ABOUT)
    about, cache = json.loads(text), Cache()
    key = next(iter(cache.read(QUICK, [digest(text)]).values()), b"")
    graph = cache.read(QUICK, [key]).get(key) if key else None
    if not graph or file_digest(folder / WEIGHTS) != about["weights_sha256"]:
        return None
    with safe_open(folder / WEIGHTS, framework="np") as file:
        scale, offset, codes = (file.get_tensor(name) for name in ("scale", "offset", "codes"))
        model = {name: file.get_tensor(f"model/{name}") for name in MODEL}
        width: Any = file.get_tensor("width") if "width" in file.keys() else None  # noqa: SIM118 - the file is no dict
    try:
        network = session(graph, 1)
    except Exception:
        cache.write(QUICK, {key: b""})  # whole, and no graph that this runtime takes: to be made anew
        raise
    unseen: Any = np.isin(about["labels"]["names"], about["described"])
    rule = about["outlier"] and OutlierRule(**about["outlier"])
    return QuickClassifier(
        labels=Labels(names=tuple(about["labels"]["names"])),
        calibration=Calibration(
            scale=scale,
            offset=offset,
            unseen=unseen,
            temperature=about["temperature"],
            multilabel=about["multilabel"],
        ),
        familiarity=Familiarity(rule=rule, width=width),
        shape=tuple(about["shape"]),
        view=from_plain(View, about.get("view", {})),
        network=network,
        label_embeddings=codes,
        model=model,
    )


def keep_quick(classifier: "Classifier", about: bytes) -> None:
    """Keep in the user's cache what the classifier of this description needs to answer without torch, where it can."""
    from labelwise.methods.discriminant.model import DiscriminantModel
    from labelwise.train.networks.runtime import graph_file

    model = classifier.model
    if not is_on() or find_spec("onnxruntime") is None or type(model) is not DiscriminantModel:
        return
    encoder, view = model.encoder, model.encoder.view
    if not encoder.frozen or view.crop is not None or classifier.shape[1:] != (view.size, view.size):
        return
    encoder = encoder if model.device.type == "cpu" else deepcopy(encoder).cpu()
    cache, key = Cache(), encoder.owner()
    if not cache.holds(QUICK, key):
        graph = graph_file(encoder.backbone, (len(encoder.mean), *classifier.shape[1:]))
        if graph is None or len(graph) > PART * cache.limit * 1e6:
            return
        cache.write(QUICK, {key: graph})
    cache.write(QUICK, {digest(about): key})


def read_about(folder: Path) -> bytes:
    """Return the description of a saved classifier as it lies there, empty where there is none."""
    try:
        return (folder / ABOUT).read_bytes()
    except OSError:
        return b""


def file_digest(path: Path) -> str:
    """Return the checksum of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
