"""Networks of other libraries as backbones: "timm:NAME", "torchvision:NAME", "transformers:PATH", "open_clip:NAME/TAG".

None of these libraries is needed, and each is imported only when asked for. It makes the network; a saved classifier holds
the weights, and to open one downloads nothing (``without_downloads``).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from labelwise.support.errors import StoreError, UnsupportedError, UsageError, listing, suggest
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.weights import IMAGENET, Normalisation

CLIP: Final[Normalisation] = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
LIBRARIES: Final = ("timm", "torchvision", "transformers", "open_clip")
HEADS: Final = ("fc", "classifier", "heads", "head")  # torchvision's names of the last layer
_LOCAL: ContextVar[bool] = ContextVar("local", default=False)


@contextmanager
def without_downloads() -> Iterator[None]:
    """While open, forbid downloads by network libraries; public weights are not loaded, since a saved state follows."""
    token = _LOCAL.set(True)
    try:
        yield
    finally:
        _LOCAL.reset(token)


class Adapter(Backbone):
    """A network of another library for colour images ``[n, 3, size, size]``; d is measured on one image.

    ``source`` makes the network, with its public weights where asked for.
    """

    comes_trained = True

    def __init__(self, source: Callable[[bool], Any], size: int, published: Normalisation) -> None:
        super().__init__(0)
        self.source, self.size, self.published = source, size, published
        self.network: Any = source(False).eval()
        with torch.no_grad():
            self.width_out = self(torch.zeros(1, 3, size, size)).shape[1]

    def load_published(self) -> None:
        """Load the library's public weights."""
        if _LOCAL.get():
            return
        try:
            self.network.load_state_dict(self.source(True).state_dict())
        except Exception as error:  # each library has its own
            raise StoreError(
                f"The public weights are not available ({error}). Give weights, the path of a file."
            ) from error

    def maps(self, x: Tensor) -> Tensor:
        """Return the last feature maps ``[n, d, h, w]`` of a convolutional timm network; others have none."""
        maps = self.network.forward_features(x) if hasattr(self.network, "forward_head") else x
        if maps.ndim != 4 or maps.shape[1] != self.width_out:
            raise UnsupportedError(
                f"{type(self.network).__name__} has no feature maps, so there is no heat map to draw."
            )
        return maps

    def pool(self, maps: Tensor) -> Tensor:
        """Pool maps to features ``[n, d]`` as the network does."""
        return self.network.forward_head(maps, pre_logits=True)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """Return features ``[n, d]``."""
        output = self.network(x)
        if not isinstance(output, Tensor):  # transformers: the pooler's output, otherwise the first token
            pooled_output = getattr(output, "pooler_output", None)
            output = output.last_hidden_state[:, 0] if pooled_output is None else pooled_output
        return output.flatten(1)  # type: ignore[no-any-return]


def _network(library: str, name: str, full: bool) -> nn.Module:
    """Return a network without its last layer; a module-level function, so that an adapter can be pickled."""
    network: Any
    match library:
        case "timm":
            network = _library("timm").create_model(name, pretrained=full, num_classes=0)
        case "torchvision":
            network = _library("torchvision.models").get_model(name, weights="DEFAULT" if full else None)
            setattr(network, next(head for head in HEADS if hasattr(network, head)), nn.Identity())
        case "transformers":
            models = _library("transformers")
            config = models.AutoConfig.from_pretrained(name, trust_remote_code=False)
            auto = models.AutoModel
            network = auto.from_pretrained(name, trust_remote_code=False) if full else auto.from_config(config)
            network = getattr(network, "vision_model", network)
        case _:
            own, _, tag = name.partition("/")
            network = _library("open_clip").create_model(own, pretrained=tag if full else None).visual
    return network  # type: ignore[no-any-return]


def _takes(library: str, name: str) -> tuple[int, Normalisation]:
    """Return the image size and normalisation of a network."""
    match library:
        case "timm":
            timm = _library("timm")
            config = timm.data.resolve_model_data_config(timm.create_model(name, pretrained=False))
            return config["input_size"][-1], (tuple(config["mean"]), tuple(config["std"]))
        case "torchvision":
            return 224, IMAGENET
        case "transformers":
            models = _library("transformers")
            kinds = (models.AutoConfig, models.AutoImageProcessor)
            config, pictures = (kind.from_pretrained(name, trust_remote_code=False) for kind in kinds)
            side = int(getattr(getattr(config, "vision_config", config), "image_size", 224))
            return side, (tuple(pictures.image_mean), tuple(pictures.image_std))
    network, _, tag = name.partition("/")
    if not tag:
        raise UsageError(f'Name the weights too, as in "open_clip:ViT-B-32/openai"; given "open_clip:{name}".')
    size = _library("open_clip").create_model(network).visual.image_size
    return size if isinstance(size, int) else size[0], CLIP


def build_adapter(library: str, name: str, shape: tuple[int, ...], width: int | None) -> Adapter:
    """Build a network of another library by name, without public weights."""
    if library not in LIBRARIES:
        raise UsageError(f'No library "{library}".{suggest(library, LIBRARIES)} Known: {listing(LIBRARIES)}.')
    if shape[0] not in (1, 3) or width is not None:
        raise UsageError(f'"{library}:{name}" takes grey or colour images and no width; given {shape}, width {width}.')
    if _LOCAL.get() and not _is_local(library, name):
        raise StoreError(
            f'It names the network "{library}:{name}", which {library} would download, and to open a saved classifier never '
            "downloads anything. Fit again with a network that is on this machine."
        )
    try:
        return Adapter(partial(_network, library, name), *_takes(library, name))
    except (AttributeError, KeyError, OSError, RuntimeError, StopIteration, ValueError) as error:
        raise UsageError(f'{library} cannot make "{name}" as an image encoder: {error}. Check the name.') from error


def _is_local(library: str, name: str) -> bool:
    """Return whether a library can build the network from local files, without public weights."""
    if library == "transformers":
        return Path(name).is_dir()
    if library == "torchvision":  # other models download their parts
        models = _library("torchvision.models")
        return name in models.list_models(module=models)
    return ":" not in name and not name.startswith("hf_hub")


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except (ImportError, RuntimeError) as error:
        package = "open-clip-torch" if name == "open_clip" else name.partition(".")[0]
        raise UsageError(
            f'"{package}" cannot be imported ({error}). Install it with a pinned torch, or pip may replace torch by '
            f"another build of several gigabytes: pip install {package} torch=={torch.__version__}."
        ) from error
