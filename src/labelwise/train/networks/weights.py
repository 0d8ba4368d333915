"""Weights of backbones from local files: safetensors, never a pickle."""

from pathlib import Path
from typing import Final

from safetensors.torch import load_file
from torch import Tensor, nn

from labelwise.support.errors import StoreError, listing
from labelwise.support.files import BROKEN, check_size, regular_path

Normalisation = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each channel
IMAGENET: Final[Normalisation] = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))  # expected by torchvision's weights
HEADS = ("fc.", "classifier.")  # classification layers in weight files
PICKLED = (".pt", ".pth", ".pkl", ".pickle", ".bin", ".ckpt", ".tar")


def load_weights(backbone: nn.Module, path: str | Path) -> None:
    """Load weights from a safetensors file with torchvision's names; nothing changes unless all of them fit.

    Entries of a classification head (``fc.``, ``classifier.``) are passed over.
    """
    weights = {name: value for name, value in read_weights(Path(path)).items() if not name.startswith(HEADS)}
    own = backbone.state_dict()
    missing = [name for name in own if name not in weights and not name.endswith("num_batches_tracked")]
    unexpected = [name for name in weights if name not in own]
    misshaped = [name for name in own if name in weights and weights[name].shape != own[name].shape]
    shapes = [f"{name} {list(weights[name].shape)} instead of {list(own[name].shape)}" for name in misshaped]
    pairs = (("missing", missing), ("unexpected", unexpected), ("of another shape", shapes))
    faults = [f"{len(names)} {problem}: {listing(names)}." for problem, names in pairs if names]
    if "conv1.weight" in misshaped and weights["conv1.weight"].shape[2:] != own["conv1.weight"].shape[2:]:
        theirs, ours = (state["conv1.weight"].shape[-1] for state in (weights, own))
        faults.append(
            f"The stem differs: {theirs}x{theirs} in the file, {ours}x{ours} here. "
            "Small images get a 3x3 stem, larger ones 7x7; set encoder.size to the side that the weights were made for."
        )
    if faults:
        raise StoreError(f'The weights in "{path}" do not fit this {type(backbone).__name__}. {" ".join(faults)}')
    backbone.load_state_dict({**own, **weights})


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name; pickles are refused unopened."""
    if path.suffix.lower() in PICKLED:
        raise StoreError(
            f'"{path}" is a pickled file, which can run code when it is opened. If you trust it, convert it once: '
            f"safetensors.torch.save_file(torch.load({path.name!r}, weights_only=True), {path.stem + '.safetensors'!r})."
        )
    if not path.is_file():
        raise StoreError(f'There is no file of weights at "{path}". Give the path of a .safetensors file.')
    try:
        check_size(path, path.stat().st_size, StoreError)
        return load_file(regular_path(path))
    except BROKEN as error:
        raise StoreError(f'"{path}" cannot be read as safetensors ({error}). Save the weights again.') from error
