"""Write the tiny image-text networks of ``tests/encoders/hub``: CLIP (two files), SigLIP (one) and DINOv2, random weights, and what torch makes of images.

    python tests/encoders/write_hub.py tests/encoders/hub

Needs torch, transformers and tokenizers, which the tests do not. Each folder is laid out as model hubs do, and ``expected.npz`` holds
pixels, token numbers and the embeddings that torch computes of them.
"""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import tokenizers
import torch
import transformers
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

SIDE, WIDTH, PATCH = 16, 8, 8
WORDS = ["<pad>", "<unk>", "a", "photo", "of", "red", "green", "blue", "yellow", "the", "night", "at", "in", "dark"]
SENTENCES = ["a photo of a red", "green at night", "a photo of the blue in the dark"]
LAYERS = {"hidden_size": WIDTH, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def write_tokenizer(folder: Path) -> tuple[tokenizers.Tokenizer, int]:
    words = [*WORDS, "<start>", "<end>"]
    reader = tokenizers.Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    reader.normalizer, reader.pre_tokenizer = Lowercase(), Whitespace()
    marks = [(word, words.index(word)) for word in ("<start>", "<end>")]
    reader.post_processor = TemplateProcessing(single="<start> $A <end>", special_tokens=marks)
    reader.add_special_tokens(["<pad>"])
    reader.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<pad>", "model_max_length": 12}))
    return reader, len(words)


def export(module: torch.nn.Module, inputs: tuple[Any, ...], file: Path, names: list[str], outputs: list[str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    axes = {name: {0: "n", 1: "t"} if name == "input_ids" else {0: "n"} for name in [*names, *outputs]}
    torch.onnx.export(
        module,
        inputs,
        str(file),
        input_names=names,
        output_names=outputs,
        dynamic_axes=axes,
        dynamo=False,
        opset_version=17,
    )
    made = onnx.load(file)
    for node in made.graph.node:
        node.ClearField("doc_string")  # the stack of the exporter
    onnx.save(made, file)


class Part(torch.nn.Module):
    """One function of a model as a module."""

    def __init__(self, model: torch.nn.Module, run: Any) -> None:
        super().__init__()
        self.model, self.run = model, run

    def forward(self, *inputs: Any) -> Any:
        return self.run(self.model, *inputs)


def embeds(kind: str) -> tuple[Any, Any]:
    if kind == "clip":
        return (
            lambda m, x: m.visual_projection(m.vision_model(pixel_values=x).pooler_output),
            lambda m, t: m.text_projection(m.text_model(input_ids=t).pooler_output),
        )
    return (
        lambda m, x: m.vision_model(pixel_values=x).pooler_output,
        lambda m, t: m.text_model(input_ids=t).pooler_output,
    )


def dual(folder: Path, kind: str, *, whole: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    reader, count = write_tokenizer(folder)
    text = {
        **LAYERS,
        "vocab_size": count,
        "max_position_embeddings": 12,
        "eos_token_id": count - 1,
        "pad_token_id": 0,
        "bos_token_id": count - 2,
    }
    vision = {**LAYERS, "image_size": SIDE, "patch_size": PATCH}
    torch.manual_seed(0)
    if kind == "clip":
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=WIDTH)
        model: Any = transformers.CLIPModel(config)
    else:
        config = transformers.SiglipConfig(text_config=text, vision_config=vision)
        model = transformers.SiglipModel(config)
        model.logit_bias.data.fill_(-2.0)
    for each in model.parameters():
        each.data += 0.3 * torch.randn_like(each) if each.ndim > 1 else 0
    model.logit_scale.data.fill_(1.5)
    model.eval().requires_grad_(False)
    see, read = embeds(kind)
    pixels = torch.randn(3, 3, SIDE, SIDE)
    ids = [reader.encode(each).ids for each in SENTENCES]
    if kind == "siglip":
        ids = [each + [0] * (12 - len(each)) for each in ids]
    rows = [torch.tensor([each]) for each in ids]
    images, texts = see(model, pixels), torch.cat([read(model, row) for row in rows])
    output = ("image_embeds", "text_embeds") if kind == "clip" else ("pooler_output", "pooler_output")
    if whole:

        def both(m: Any, t: Any, x: Any) -> Any:
            done = m(input_ids=t, pixel_values=x)
            return done.logits_per_image, done.logits_per_text, done.text_embeds, done.image_embeds

        names = ["logits_per_image", "logits_per_text", "text_embeds", "image_embeds"]
        export(
            Part(model, both), (rows[0], pixels[:1]), folder / "onnx/model.onnx", ["input_ids", "pixel_values"], names
        )
    else:
        export(Part(model, see), (pixels[:1],), folder / "onnx/vision_model.onnx", ["pixel_values"], [output[0]])
        export(Part(model, read), (rows[0],), folder / "onnx/text_model.onnx", ["input_ids"], [output[1]])
    plain = json.loads(config.to_json_string(use_diff=False))
    kept = ("image_size", "max_position_embeddings", "hidden_size", "eos_token_id")
    (folder / "config.json").write_text(
        json.dumps(
            {"model_type": kind, "text_config": {k: v for k, v in plain["text_config"].items() if k in kept},
             "vision_config": {k: v for k, v in plain["vision_config"].items() if k in kept}}, indent=1,
        )
    )  # fmt: skip
    size: Any = {"shortest_edge": SIDE} if kind == "clip" else {"height": SIDE, "width": SIDE}
    crop = {"do_center_crop": True, "crop_size": {"height": SIDE, "width": SIDE}} if kind == "clip" else {}
    write_preprocessor(folder, {"size": size, **crop, "image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    logits = torch.cat([model(input_ids=row, pixel_values=pixels).logits_per_image for row in rows], 1)
    np.savez(
        folder / "expected.npz", pixels=pixels.numpy(), images=images.numpy(), texts=texts.numpy(), logits=logits.numpy(),
        tokens=np.array([each + [-1] * (12 - len(each)) for each in ids]), sentences=np.array(SENTENCES),
    )  # fmt: skip


def dinov2(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    config = transformers.Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=2, image_size=SIDE, patch_size=PATCH
    )
    model = transformers.Dinov2Model(config).eval().requires_grad_(False)
    pixels = torch.randn(3, 3, SIDE, SIDE)
    see = Part(model, lambda m, x: m(pixel_values=x).last_hidden_state)
    export(see, (pixels[:1],), folder / "onnx/model.onnx", ["pixel_values"], ["last_hidden_state"])
    (folder / "config.json").write_text(json.dumps({"model_type": "dinov2", "image_size": 518, "hidden_size": WIDTH}))
    write_preprocessor(
        folder,
        {"size": {"shortest_edge": 20}, "do_center_crop": True, "crop_size": {"height": SIDE, "width": SIDE},
         "image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]},
    )  # fmt: skip
    np.savez(
        folder / "expected.npz",
        pixels=pixels.numpy(),
        images=model(pixel_values=pixels).last_hidden_state[:, 0].numpy(),
    )


def write_preprocessor(folder: Path, settings: dict[str, Any]) -> None:
    usual = {"do_resize": True, "do_rescale": True, "do_normalize": True, "rescale_factor": 1 / 255, "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps({**usual, **settings}, indent=1))


def main() -> None:
    folder = Path(sys.argv[1])
    dual(folder / "clip", "clip", whole=False)
    dual(folder / "siglip", "siglip", whole=True)
    dinov2(folder / "dinov2")


if __name__ == "__main__":
    main()
