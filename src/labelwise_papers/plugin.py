"""The plug-in of this package for ``labelwise``: baselines, benchmarks by name, xlsa17 folders, attacks, sound, and verbs."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from labelwise.images.dataset import Dataset

METHODS = {
    "supcon": ("multilabel", "labelwise_papers.baselines.supcon:Supcon"),
    "ridge": ("eszsl", "labelwise_papers.baselines.ridge:Ridge"),
    "devise": ("ridge", "labelwise_papers.baselines.devise:Devise"),
    "cgan": ("izf", "labelwise_papers.baselines.cgan:Cgan"),
}
STUDIES = {
    "prototype_authors": "labelwise_papers.baselines.as_published:AuthorsPrototype",
    "softmax_noisy": "labelwise_papers.baselines.as_published:NoisySoftmax",
    "indicator_torch": "labelwise_papers.baselines.as_published:TorchIndicator",
    "izf_features": "labelwise_papers.baselines.as_published:IzfOnFeatures",
    "zero_label_authors": "labelwise_papers.baselines.authors_naming:AuthorsZeroLabel",
}
HEADS = {
    "cgan": "labelwise_papers.baselines.cgan_head:CganHead",
    "izf_features": "labelwise_papers.baselines.cgan_head:IzfFeaturesHead",
}
BACKBONES = {
    "vgg11_bn": "labelwise_papers.baselines.backbones:VGG",
    "lenet": "labelwise_papers.baselines.backbones:LeNet",
    "lenet_dropout": "labelwise_papers.baselines.backbones:LeNetDropout",
    "wrn28_10": "labelwise_papers.baselines.backbones:WideResNet",
    "resnet12": "labelwise_papers.baselines.backbones:ResNet12",
    "xvector": "labelwise_papers.sound.xvectors:XVector",
    "xvector_8k": "labelwise_papers.sound.xvectors:xvector_8k",
    "xvector_16k": "labelwise_papers.sound.xvectors:xvector_16k",
    "xvector_mel_8k": "labelwise_papers.sound.xvectors:xvector_mel_8k",
    "xvector_mel_16k": "labelwise_papers.sound.xvectors:xvector_mel_16k",
}
ON_FEATURES = ("xvector_8k", "xvector_16k", "xvector_mel_8k", "xvector_mel_16k")
ENCODERS: dict[str, str] = {}


def __getattr__(name: str) -> Any:
    """Return the verbs, imported when the shell asks for them: who loads a benchmark in Python needs no shell."""
    if name == "VERBS":
        from labelwise_papers.analyse_verb import analyse
        from labelwise_papers.attacks.verb import attack
        from labelwise_papers.verb import reproduce

        return {"Measure": (attack, analyse), "More": (reproduce,)}
    if name == "DATA_VERBS":
        from labelwise_papers.verb import get, where, zero_shot

        return (where, get, zero_shot)
    raise AttributeError(f"module labelwise_papers.plugin has no attribute {name!r}")


def names() -> Iterable[str]:
    """Return the names of the benchmarks."""
    from labelwise_papers.benchmarks import ENTRIES

    return ENTRIES


def load(name: str, *, root: str | Path | None, size: int | None, protocol: str | None, seed: int) -> "Dataset":
    """Return a benchmark, see ``load_benchmark``."""
    from labelwise_papers.benchmarks import load_benchmark

    return load_benchmark(name, root=root, size=size, protocol=protocol, seed=seed)


def reads(path: Path) -> bool:
    """Return whether a folder has the xlsa17 layout, or holds sounds and no images."""
    from labelwise.images.sources.paths import holds_images
    from labelwise_papers.sound.wav_files import list_wavs

    return _is_xlsa17(path) or (not holds_images(path) and bool(list_wavs(path)))


def _is_xlsa17(path: Path) -> bool:
    return (path / "att_splits.mat").exists()


def read(path: Path, seed: int) -> "Dataset":
    """Return the data of a folder that ``reads`` knows, with what a file in it says about the labels."""
    from labelwise.images.describe.knowledge import find_knowledge, with_knowledge
    from labelwise_papers.benchmarks.xlsa17 import read_xlsa17
    from labelwise_papers.sound.wav_files import audio_folder

    if not _is_xlsa17(path):
        return audio_folder(path, seed=seed)
    data, knowledge = read_xlsa17(path).dataset(seed=seed), find_knowledge(path)
    return with_knowledge(data, knowledge) if knowledge else data


def rows(root: str | Path | None) -> list[Mapping[str, Any]]:
    """Return a row for each benchmark, with where it was found."""
    from labelwise_papers.benchmarks import list_benchmarks

    return list_benchmarks(root)
