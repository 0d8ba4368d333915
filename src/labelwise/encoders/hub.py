"""Encoders from model-hub folders: ``config.json``, image preprocessing, a tokenizer, and ONNX files.

An image network alone (DINOv2, ViT) is an ordinary encoder. With a text network (CLIP, SigLIP 1 and 2, MobileCLIP,
BioCLIP, Chinese-CLIP), images and sentences share one embedding space. Only the ONNX files of the folder run.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from labelwise.encoders.graph import Cut, Operation, Shape, cut, interface, part_of
from labelwise.encoders.onnx import Card, OnnxEncoder, onnx_id, open_session, read_file
from labelwise.encoders.preprocessor import MOST_JSON, OPEN_CLIP, PREPROCESSOR, preprocessing, read_json
from labelwise.encoders.texts import TextNetwork
from labelwise.support.errors import StoreError, UsageError, listing
from labelwise.support.files import read_regular

CONFIG = "config.json"
TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
IMAGE, TEXT, BOTH = "vision_model", "text_model", "model"  # files of networks
PRECISIONS: Final = ("", "_fp16", "_quantized", "_int8", "_uint8")  # suffixes, the most precise first
LOGITS: Final = ("image_embeds", "text_embeds", "logits_per_image")  # outputs of a dual encoder
# The default log scale and bias. Training drives the scale of every published CLIP to its limit of 100. The values of SigLIP
# are from base-patch16-224; other sizes differ slightly.
USUAL: Final = {"softmax": (float(np.log(100)), 0.0), "sigmoid": (4.765, -12.93)}
CLASS_TOKEN: Final = 0  # the row of the class token in ``last_hidden_state``


@dataclass(frozen=True, kw_only=True)
class Logits:
    """The map from cosines to log-odds: scale x cosine + bias."""

    scale: float
    bias: float
    sigmoid: bool  # labels are independent (sigmoid); else they compete (softmax)
    source: str  # the origin of the values, in words


@dataclass(frozen=True, eq=False, kw_only=True)
class Hub:
    """The networks of a folder; the text network is opened on first use."""

    folder: Path
    config: Mapping[str, Any]
    images: OnnxEncoder
    reads_texts: bool

    @cached_property
    def texts(self) -> TextNetwork:
        """The text network."""
        if not self.reads_texts:
            raise UsageError(
                f"{self.images.name} reads no texts: it has no text network. Take an image-text encoder (CLIP, SigLIP)."
            )
        return _text_network(self.folder, self.config)

    @cached_property
    def logits(self) -> Logits:
        """The map from cosines to log-odds."""
        return _logits(self)


def is_hub(folder: Path) -> bool:
    """Return whether a folder has the layout of a model hub."""
    return any((folder / name).is_file() for name in (CONFIG, OPEN_CLIP)) and _file(folder, IMAGE, BOTH) is not None


def open_hub(folder: Path) -> Hub:
    """Open the networks of a folder, or raise an error that says what is wrong."""
    config = _config(folder)
    file = _file(folder, IMAGE, BOTH)
    if file is None:
        raise StoreError(f'"{folder}" has no {IMAGE}.onnx or {BOTH}.onnx, in it or in its folder onnx.')
    content = read_file(file)
    dual = "text_config" in config or _file(folder, TEXT) is not None
    inputs, outputs = interface(content)
    output = _image_output(outputs, config, dual=dual)
    card = _card(folder, config, inputs, output)
    read = partial(_image_network, file, output, config.get("hidden_size"))
    images = OnnxEncoder(card, onnx_id(card, read()), read)
    return Hub(folder=folder, config=config, images=images, reads_texts=dual)


def _config(folder: Path) -> dict[str, Any]:
    """Read config.json, or its open_clip equivalent."""
    if (folder / CONFIG).is_file():
        return read_json(folder / CONFIG)
    plain = read_json(folder / OPEN_CLIP)
    model = plain.get("model_cfg", {})
    sigmoid = "siglip" in str(plain).lower()
    text = {"max_position_embeddings": model.get("text_cfg", {}).get("context_length", 77)}
    vision = {"image_size": model.get("vision_cfg", {}).get("image_size")}
    return {"model_type": "siglip" if sigmoid else "clip", "text_config": text, "vision_config": vision, **plain}


def _file(folder: Path, *stems: str) -> Path | None:
    """Return the most precise ONNX file of the first of these names that exists."""
    places = (
        place / f"{stem}{end}.onnx" for stem in stems for end in PRECISIONS for place in (folder / "onnx", folder)
    )
    return next((each for each in places if each.is_file()), None)


def _image_output(outputs: Mapping[str, Shape], config: Mapping[str, Any], *, dual: bool) -> str:
    """Return the output with image embeddings; for a dual encoder, those in the shared space, projected if it projects."""
    if "image_embeds" in outputs:
        return "image_embeds"
    if "pooler_output" in outputs and (not dual or _is_siglip(config)):
        return "pooler_output"
    if dual:
        raise StoreError(
            f"The image network has the outputs {listing(outputs)}, and none is in the space of texts: image_embeds is expected. "
            "Export it with its projection (CLIPVisionModelWithProjection)."
        )
    if "last_hidden_state" in outputs:
        return "last_hidden_state"
    if len(outputs) == 1:
        return next(iter(outputs))
    raise StoreError(f"The image network has the outputs {listing(outputs)}, and none is known. Write a card for it.")


def _image_network(file: Path, output: str, width: int | None) -> bytes:
    """Return the image part of a file, reduced to the class token if the output is tokens; ``width`` is the default size."""
    content = read_file(file)
    inputs, outputs = interface(content)
    if output == "last_hidden_state":
        width = outputs[output][-1] or width
        if width is None:
            raise StoreError(f'"{file.name}" does not say how many features it makes. Write a card for it.')
        token = Operation(kind="Gather", inputs=(output, "class/row"), output="class_token", attributes={"axis": 1})
        plan = Cut(outputs={"class_token": (width,)}, operations=(token,), constants={"class/row": CLASS_TOKEN})
        return cut(content, plan)
    return content if set(inputs) == {"pixel_values"} and list(outputs) == [output] else part_of(content, [output])


def _card(folder: Path, config: Mapping[str, Any], inputs: Mapping[str, Shape], output: str) -> Card:
    """Return the card of the image network; raise an error if the folder contradicts itself."""
    if "pixel_values" not in inputs:
        raise StoreError(f"The image network has the inputs {listing(inputs)}; pixel_values is expected.")
    if extra := {"pixel_attention_mask", "spatial_shapes"} & set(inputs):
        raise StoreError(
            f"The image network asks for {min(extra)}: images of any size are not read. Take a fixed size."
        )
    shape, crop, fit, mean, std = preprocessing(folder)
    card = Card(
        name=folder.resolve().name, shape=shape, input="pixel_values",
        output="class_token" if output == "last_hidden_state" else output, mean=mean, std=std, fit=fit, crop=crop,
    )  # fmt: skip
    seen = card.view.seen(shape)
    stated = (config.get("vision_config") or {}).get("image_size")
    graph = inputs["pixel_values"][1:]
    wanted = {size for size in (stated,) if isinstance(size, int)}
    fixed = [size for size in graph if size is not None]
    if (wanted and wanted != set(seen[1:])) or any(size not in seen for size in fixed):
        raise StoreError(
            f'"{folder}" contradicts itself: images are brought to {list(seen)}, and the network takes '
            f"{list(graph) if fixed else stated}. Get {PREPROCESSOR} of this network."
        )
    return card


def _text_network(folder: Path, config: Mapping[str, Any]) -> TextNetwork:
    """Return the text network of a folder."""
    file = _file(folder, TEXT, BOTH)
    if file is None or not (folder / TOKENIZER).is_file():
        raise StoreError(
            f'"{folder}" reads texts and lacks {TOKENIZER if file else f"{TEXT}.onnx"}. Get the whole folder.'
        )
    content = read_file(file)
    inputs, outputs = interface(content)
    siglip = _is_siglip(config)
    output = "text_embeds" if "text_embeds" in outputs else "pooler_output" if siglip else ""
    if output not in outputs:
        raise StoreError(
            f"The text network has the outputs {listing(outputs)}, and none is in the space of images: text_embeds is expected. "
            "Export it with its projection (CLIPTextModelWithProjection)."
        )
    if set(outputs) != {output}:
        content = part_of(content, [output])
    about = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).is_file() else {}
    fixed = inputs.get("input_ids", (None,))[-1]
    stated = (config.get("text_config") or {}).get("max_position_embeddings") or about.get("model_max_length")
    longest = fixed or (64 if stated is None and siglip else int(stated or 77))
    tokenizer = read_regular(folder / TOKENIZER, MOST_JSON)
    filled = siglip or fixed is not None  # SigLIP reads its last token, so sentences have one length
    return TextNetwork(
        graph=np.frombuffer(content, np.uint8), tokenizer=np.frombuffer(tokenizer, np.uint8), output=output, longest=longest,
        padding=_padding(json.loads(tokenizer), about) if filled else None, lowercase=siglip,
    )  # fmt: skip


def _padding(tokenizer: Mapping[str, Any], about: Mapping[str, Any]) -> int:
    """Return the padding token."""
    told = (tokenizer.get("padding") or {}).get("pad_id")
    named = about.get("pad_token")
    name = named.get("content") if isinstance(named, dict) else named
    by_name = {each["content"]: each["id"] for each in tokenizer.get("added_tokens", ())}
    return int(by_name.get(name, told or 0))


def _logits(hub: Hub) -> Logits:
    """Return the map from cosines to log-odds: from the folder, measured on the dual encoder, or the default."""
    sigmoid, whole = _is_siglip(hub.config) or "logit_bias" in hub.config, _file(hub.folder, BOTH)
    if "logit_scale" in hub.config:
        scale, bias, source = float(hub.config["logit_scale"]), float(hub.config.get("logit_bias", 0.0)), CONFIG
    elif whole is not None and set(LOGITS) <= set(interface(read_file(whole))[1]):
        scale, bias, source = *_measured(read_file(whole), hub), "its whole network"
    else:
        scale, bias, source = *USUAL["sigmoid" if sigmoid else "softmax"], "what is usual for its kind"
    return Logits(scale=float(np.exp(scale)), bias=bias if sigmoid else 0.0, sigmoid=sigmoid, source=source)


def _measured(whole: bytes, hub: Hub) -> tuple[float, float]:
    """Measure the log scale and the bias by which a network turns cosines into logits."""
    session, card = open_session(whole), hub.images.card
    pixels = np.random.default_rng(0).normal(size=(2, *card.view.seen(card.shape))).astype(np.float32)
    cosines, logits = [], []
    for sentence in ("a cat", "a red car on a road", "the sea", "an old man"):
        tokens = hub.texts.tokens(sentence)
        fed = {name: tokens[name] for each in session.get_inputs() if (name := each.name) != "pixel_values"}
        image, text, logit = session.run(list(LOGITS), {**fed, "pixel_values": pixels})
        unit_image, unit_text = (each / np.linalg.norm(each, axis=-1, keepdims=True) for each in (image, text))
        cosines += (unit_image @ unit_text.T).ravel().tolist()
        logits += logit.ravel().tolist()
    scale, bias = np.polyfit(cosines, logits, 1)
    return float(np.log(scale)), float(bias)


def _is_siglip(config: Mapping[str, Any]) -> bool:
    return str(config.get("model_type", "")).startswith("siglip")
