"""An image encoder trained without any label, and the file of its weights, which every method takes as ``encoder.weights``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from labelwise.data.dataset import Split, TrainData
from labelwise.errors import StoreError, UnsupportedError, UsageError
from labelwise.files import read_tensors, write_tensors
from labelwise.fitting.contrast import Contrast, ContrastHead, contrast_stage
from labelwise.labels import Labels
from labelwise.model import LabelModel, Spec
from labelwise.nn.encoder import Encoder, ImageEncoder
from labelwise.training.loop import train
from labelwise.training.stages import Method, Run, Stage
from labelwise.view import WHOLE, View


class ContrastModel(LabelModel):
    """An image encoder and what trains it; it knows no label, so it scores none."""

    def __init__(self, spec: Spec, encoder: ImageEncoder, settings: Contrast) -> None:
        super().__init__(spec)
        self.encoder = encoder
        self.contrast = ContrastHead(settings, encoder)

    def encode_images(self, images: Tensor) -> Tensor:
        """Return image embeddings ``[n, d]``."""
        return self.encoder(images)  # type: ignore[no-any-return]

    def encode_labels(self, labels: Labels) -> Tensor:  # noqa: ARG002
        """Raise an error: there are no labels here."""
        raise UnsupportedError("An encoder trained without labels knows none. Fit a method with encoder.weights=FILE.")

    def score(self, image_embeddings: Tensor, label_embeddings: Tensor) -> Tensor:  # noqa: ARG002
        """Raise an error: there are no labels here."""
        raise UnsupportedError("An encoder trained without labels scores none.")


@dataclass(frozen=True, kw_only=True)
class Pretrain(Contrast, Method):
    """Contrast alone: trains an encoder, at random or from its weights on, to write to a file. It makes no classifier."""

    name: ClassVar[str] = "pretrain"
    needs: ClassVar[tuple[str, ...]] = ()

    encoder: Encoder = field(default_factory=Encoder)

    def build(self, spec: Spec) -> ContrastModel:
        """Return the untrained model."""
        return ContrastModel(spec, fresh_encoder(self.encoder, spec.shape, spec.view), self)

    def stages(self, model: LabelModel, data: TrainData) -> Iterator[Stage]:
        """Yield the contrast."""
        assert isinstance(model, ContrastModel)
        yield contrast_stage(self, model.encoder, model.contrast, data)


def fresh_encoder(settings: Encoder, shape: tuple[int, ...], view: View = WHOLE) -> ImageEncoder:
    """Return an encoder to train, normalised as it will be when its weights are loaded again."""
    if settings.frozen or settings.code_size is not None or len(shape) == 1:
        raise UsageError(
            "Pretraining trains a backbone on pictures, as it is: leave out encoder.frozen and encoder.code_size, and give "
            f"pictures, not features (given images of shape {shape})."
        )
    return settings.build(shape, view, to_publish=True)


def pretrain(images: Tensor, method: Pretrain, run: Run | None = None) -> tuple[ImageEncoder, dict[str, Any]]:
    """Return an encoder trained on pictures without labels, and a summary of the run.

    Args:
        images: bytes ``[n, c, h, w]``.
        method: what to train and how.
        run: seed, device, folder for log and checkpoints.
    """
    split = Split(images=images, targets=torch.full((len(images),), -1))
    data = TrainData(train=split, val=split.select([]), labels=Labels(names=("unlabelled",)))
    model, summary = train(method, data, run or Run())
    assert isinstance(model, ContrastModel)
    return model.encoder, summary


def write_encoder(path: Path, encoder: ImageEncoder, settings: Encoder, about: Mapping[str, Any]) -> None:
    """Write the backbone's weights, and what is needed to build it again, as one safetensors file.

    Args:
        path: the file.
        encoder: whose weights.
        settings: it was built with.
        about: more to tell in the file.
    """
    name = "convnet" if settings.backbone == "auto" else settings.backbone
    built = {"backbone": name, "width": settings.width, "shape": list(encoder.shape), "size": encoder.view.size}
    built |= {"mean": encoder.mean.tolist(), "std": encoder.std.tolist()}
    write_tensors(path, encoder.backbone.state_dict(), {**about, "encoder": built})


def read_encoder(path: str | Path) -> Encoder:
    """Return the settings of an encoder with the weights that ``write_encoder`` wrote, not frozen."""
    _, about = read_tensors(Path(path))
    if "encoder" not in about:
        raise StoreError(f'"{path}" does not say which encoder its weights belong to. Set encoder.backbone yourself.')
    built = about["encoder"]
    side = built["shape"][1] if built["shape"][1] == built["shape"][2] else None
    return Encoder(backbone=built["backbone"], width=built["width"], weights=str(path), size=built["size"] or side)
