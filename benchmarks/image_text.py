"""An image-text encoder from labelled photos: MiniLM sentences brought into the space of an image encoder, in closed form.

    python benchmarks/image_text.py FEATURES FOLDER --train tin cub flowers cifar100 --sets pets pacs bmw

FEATURES holds ``NAME-dinov2-small.npz`` with features, labels and names (``encoders.py`` writes such files). Kernel ridge regression from what MiniLM makes of
"a photo of a NAME" to the mean of a label's whitened features. A fifth of the labels of each set is left out in turn to test on, and to choose scale and bias by;
FOLDER gets the encoder of all labels, laid out as model hubs do, so that ``labelwise fit PHOTOS --names names.txt --encoder FOLDER`` opens it. Sets are left out whole.
Needs torch (to write the text network), onnx, tokenizers and the weights of MiniLM.
"""

import argparse
import json
import shutil
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from scipy.optimize import minimize_scalar

from labelwise.core.calibration import usual_odds
from labelwise.encoders.registry import open_from_library
from labelwise.images.describe.minilm import MINILM, MiniLM, minilm
from labelwise.methods.words.vocabulary import sentence
from labelwise.support.rows import unit_rows

# Chosen on labels left out of TinyImageNet, CUB, Flowers and CIFAR-100, two splits. Machine-written sentences on species, 16 a label, changed accuracy by
# less than 2 points there, up or down, so names are all that is read.
SHARPNESS, RIDGE, SHRINK = 6.0, 0.3, 0.3
SPLITS, LEFT_OUT = 3, 0.2
Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Photos:
    """Features of photos, their labels, and the names of each label as sentences."""

    features: Array
    labels: Array
    names: list[list[str]]

    def select(self, labels: Array) -> "Photos":
        """Return the photos of some labels."""
        rows = np.isin(self.labels, labels)
        return Photos(self.features[rows], np.searchsorted(labels, self.labels[rows]), [self.names[i] for i in labels])


def read(file: Path) -> Photos:
    """Return the photos of a pack."""
    pack = np.load(file)
    names = pack["names" if "names" in pack else "classes"]
    told = [[sentence(each.strip()) for each in str(name).split(",")[:3]] for name in names]
    return Photos(pack["features"], pack["labels"], told)


@dataclass(frozen=True, eq=False)
class Map:
    """Images to ``(unit(x) - middle) @ white``, sentences to ``exp(sharpness (v @ known.T - 1)) @ weights + mean``; both at unit length."""

    middle: Array
    white: Array
    known: Array
    weights: Array
    mean: Array

    @classmethod
    def of(cls, sets: list[Photos]) -> "Map":
        """Return the map that fits labels best."""
        starts = np.cumsum([0, *(len(each.names) for each in sets)])
        targets = np.concatenate([each.labels + start for each, start in zip(sets, starts, strict=False)])
        features = unit_rows(np.concatenate([each.features for each in sets]).astype(np.float64))
        middle, count = features.mean(0), int(starts[-1])
        centred = features - middle
        means = np.stack([centred[targets == label].mean(0) for label in range(count)])
        rest = centred - means[targets]
        spread = rest.T @ rest / (len(rest) - count)
        spread = (1 - SHRINK) * spread + SHRINK * np.trace(spread) / len(spread) * np.eye(len(spread))
        values, axes = np.linalg.eigh(spread)
        white = (axes * values**-0.5) @ axes.T
        wanted = means @ white
        texts = [(text, label) for label, names in enumerate(n for each in sets for n in each.names) for text in names]
        known = minilm().encode([text for text, _ in texts]).astype(np.float64)
        kernel = np.exp(SHARPNESS * (known @ known.T - 1)) + RIDGE * np.eye(len(known))
        mean = wanted.mean(0)
        weights = np.linalg.solve(kernel, wanted[[label for _, label in texts]] - mean)
        return cls(middle, white, known, weights, mean)

    def images(self, features: Array) -> Array:
        """Return embeddings of images."""
        return unit_rows((unit_rows(features) - self.middle) @ self.white)

    def texts(self, names: list[list[str]]) -> Array:
        """Return embeddings of labels by the first of their names."""
        vectors = minilm().encode([each[0] for each in names])
        return unit_rows(np.exp(SHARPNESS * (vectors @ self.known.T - 1)) @ self.weights + self.mean)

    def cosines(self, photos: Photos) -> Array:
        """Return the cosine of every image with every label."""
        return self.images(photos.features) @ self.texts(photos.names).T


def accuracy(map_: Map, photos: Photos) -> float:
    return float((map_.cosines(photos).argmax(1) == photos.labels).mean())


def yes_of(odds: Array, labels: Array) -> tuple[Array, Array, Array]:
    """Return the log-odds of pairs of an image and a label, which are right, and weights: right and wrong pairs count alike."""
    right = np.eye(odds.shape[1], dtype=bool)[labels].ravel()
    return odds.ravel(), right, np.where(right, 0.5 / right.sum(), 0.5 / (~right).sum())


def loss(scale: float, pairs: list[tuple[Array, Array]]) -> float:
    """Return the log loss of a yes and a no to labels left out, each compared with the other images of its set."""
    total = 0.0
    for cosines, labels in pairs:
        odds, right, weights = yes_of(scale * cosines - usual_odds(scale * cosines), labels)
        total += float((weights * np.logaddexp(0, np.where(right, -odds, odds))).sum())
    return total


def logits_of(pairs: list[tuple[Array, Array]]) -> tuple[float, float]:
    """Return the scale under which yes and no to labels left out are likeliest, and the bias that is usual then."""
    scale = float(minimize_scalar(loss, bounds=(1, 60), args=(pairs,), method="bounded").x)
    return scale, -float(np.mean([usual_odds(scale * cosines).mean() for cosines, _ in pairs]))


def error_of_yes(log_odds: Array, labels: Array) -> float:
    """Return how far off the probability of a yes is on average, in ten bins."""
    odds, right, weights = yes_of(log_odds, labels)
    yes, weights = 1 / (1 + np.exp(-odds)), weights / weights.sum()
    bins = np.minimum((10 * yes).astype(int), 9)
    return float(np.abs([weights[bins == i] @ (yes - right)[bins == i] for i in range(10)]).sum())


def calibration_error(cosines: Array, labels: Array, scale: float) -> float:
    """Return how far off a yes is that is compared with the other images of a set."""
    return error_of_yes(scale * cosines - usual_odds(scale * cosines), labels)


class Sentences(torch.nn.Module):
    """MiniLM and the map behind it, as ``MiniLM._forward`` computes it."""

    def __init__(self, reader: MiniLM, map_: Map) -> None:
        super().__init__()
        self.reader = reader
        self.weights = {name: torch.tensor(np.asarray(each)) for name, each in reader.weights.items()}
        self.map_ = {
            name: torch.tensor(getattr(map_, name), dtype=torch.float32) for name in ("known", "weights", "mean")
        }

    def forward(self, ids: Any, real: Any) -> Any:
        """Return embeddings of unit length ``[n, d]`` of tokens ``[n, t]``, of which some are real."""
        table = self.weights
        x = table["embeddings.word_embeddings.weight"][ids] + table["embeddings.token_type_embeddings.weight"][0]
        x = self.norm(
            x + table["embeddings.position_embeddings.weight"][torch.arange(ids.shape[1])], "embeddings.LayerNorm"
        )
        for layer in range(self.reader.layers):
            at = f"encoder.layer.{layer}"
            query, key, value = (
                self.dense(x, f"{at}.attention.self.{part}").unflatten(2, (self.reader.heads, -1)).transpose(1, 2)
                for part in ("query", "key", "value")
            )
            weights = query @ key.transpose(2, 3) / query.shape[3] ** 0.5 + (real[:, None, None].float() - 1) * 1e9
            mixed = (weights.softmax(-1) @ value).transpose(1, 2).flatten(2)
            x = self.norm(x + self.dense(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
            inner = torch.nn.functional.gelu(self.dense(x, f"{at}.intermediate.dense"))
            x = self.norm(x + self.dense(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm")
        mean = (x * real[..., None].float()).sum(1)
        vector = mean / mean.norm(dim=1, keepdim=True)
        made = torch.exp(SHARPNESS * (vector @ self.map_["known"].T - 1)) @ self.map_["weights"] + self.map_["mean"]
        return made / made.norm(dim=1, keepdim=True)

    def dense(self, x: Any, at: str) -> Any:
        """Return a linear layer of x."""
        return torch.nn.functional.linear(x, self.weights[f"{at}.weight"], self.weights[f"{at}.bias"])

    def norm(self, x: Any, at: str) -> Any:
        """Return x, normalised."""
        weight = self.weights[f"{at}.weight"]
        return torch.nn.functional.layer_norm(x, weight.shape, weight, self.weights[f"{at}.bias"], self.reader.epsilon)


def write(folder: Path, map_: Map, scale: float, bias: float, encoder: str) -> None:
    """Write the encoder as hubs publish them."""
    base = open_from_library(encoder)
    (folder / "onnx").mkdir(parents=True, exist_ok=True)
    model = onnx.load_from_string(base.content)
    graph, (name,) = model.graph, [each.name for each in model.graph.input if each.name == base.card.input]
    arrays = {"map/middle": map_.middle, "map/white": map_.white}
    graph.initializer.extend(numpy_helper.from_array(each.astype(np.float32), key) for key, each in arrays.items())
    graph.node.insert(0, helper.make_node("Identity", ["pixel_values"], [name]))
    steps = (("LpNormalization", [base.card.output], "map/unit"), ("Sub", ["map/unit", "map/middle"], "map/centred"),
             ("MatMul", ["map/centred", "map/white"], "map/made"), ("LpNormalization", ["map/made"], "image_embeds"))  # fmt: skip
    graph.node.extend(helper.make_node(kind, inputs, [output]) for kind, inputs, output in steps)
    next(each for each in graph.input if each.name == name).name = "pixel_values"
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("image_embeds", onnx.TensorProto.FLOAT, ["n", len(map_.white)]))
    onnx.save(model, folder / "onnx/vision_model.onnx")
    inputs = {"input_ids": torch.tensor([[101, 1037, 102]]), "attention_mask": torch.ones(1, 3, dtype=torch.int64)}
    torch.onnx.export(Sentences(minilm(), map_).eval(), tuple(inputs.values()), str(folder / "onnx/text_model.onnx"), input_names=list(inputs), output_names=["text_embeds"],
                      dynamic_axes={name: {0: "n", 1: "t"} for name in inputs}, dynamo=False, opset_version=17)  # fmt: skip
    shutil.copy(Path(str(import_module(MINILM[0]).__file__)).parent / "model/tokenizer.json", folder)
    side, card = base.shape[1], base.card
    about = {"model_type": "minilm-and-image-encoder", "text_config": {"max_position_embeddings": 256}, "vision_config": {"image_size": side},
             "logit_scale": float(np.log(scale)), "logit_bias": bias}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(about, indent=1))
    seen = {
        "size": {"shortest_edge": side},
        "do_center_crop": True,
        "crop_size": {"height": side, "width": side},
        "resample": 2,
        "image_mean": card.mean,
        "image_std": card.std,
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(seen, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("features", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", nargs="+", required=True)
    parser.add_argument("--sets", nargs="+", default=[], help="left out whole")
    parser.add_argument("--encoder", default="dinov2-small")
    options = parser.parse_args()
    data = {name: read(options.features / f"{name}-{options.encoder}.npz") for name in (*options.train, *options.sets)}
    left: dict[str, list[float]] = {}
    scales, errors = [], dict[str, list[float]]()
    for split in range(SPLITS):
        rng = np.random.default_rng(split)
        orders = {name: rng.permutation(len(data[name].names)) for name in options.train}
        test = {name: data[name].select(np.sort(order[: int(LEFT_OUT * len(order))])) for name, order in orders.items()}
        map_ = Map.of(
            [data[name].select(np.sort(order[int(LEFT_OUT * len(order)) :])) for name, order in orders.items()]
        )
        pairs = {name: (map_.cosines(each), each.labels) for name, each in test.items()}
        for name, each in test.items():
            left.setdefault(f"{name}, {len(each.names)} labels left out", []).append(100 * accuracy(map_, each))
            others = [pair for other, pair in pairs.items() if other != name]  # the scale of the other sets
            errors.setdefault(name, []).append(100 * calibration_error(*pairs[name], logits_of(others)[0]))
        scales.append(logits_of(list(pairs.values())))
    whole = Map.of([data[name] for name in options.train])
    scale, bias = np.mean(scales, 0)
    for name, right in left.items():
        figures = {"right": round(float(np.mean(right)), 1), "spread": round(float(np.std(right)), 1)}
        print(json.dumps({"set": name, **figures, "splits": len(right)}))
    for name in options.sets:
        cosines = whole.cosines(data[name])
        off = 100 * calibration_error(cosines, data[name].labels, scale)
        line = {
            "set": f"{name}, left out whole",
            "labels": len(data[name].names),
            "right": round(100 * accuracy(whole, data[name]), 1),
            "yes_off": round(off, 1),
        }
        print(json.dumps(line))
    print(
        json.dumps(
            {
                "scale": round(scale, 2),
                "bias": round(bias, 2),
                "yes_off_on_labels_left_out": {name: round(float(np.mean(each)), 1) for name, each in errors.items()},
            }
        )
    )
    write(options.folder, whole, scale, bias, options.encoder)


if __name__ == "__main__":
    main()
