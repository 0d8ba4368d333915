import gc
import os
import shutil
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

# One thread per worker: tests run in parallel, and two OpenMP pools on the same cores slow each other down.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COLUMNS", "200")
os.environ["LABELWISE_CACHE"] = "off"  # tests of the cache name a folder of their own
os.environ["LABELWISE_ENCODERS"] = os.devnull  # tests of encoders name one, too

import pytest
import torch
import typer.main
from hypothesis import settings
from safetensors.torch import save_file

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.methods import METHODS, Discriminant, Encoder, ImageMethod, Izf, Method, Prototype, ZeroLabel
from labelwise.methods.shared.linear import HeadModel
from labelwise.reporting import case
from labelwise.train import export_encoder
from labelwise.train.augment import Augment
from labelwise.train.method import Run
from labelwise.train.optimizers import Optimizer
from labelwise_papers.baselines.cgan import Cgan
from tests import once, quick_onnx

pytest_plugins = ["tests.browser"]
torch.set_num_threads(1)
# Timings are never asserted; more examples: LABELWISE_EXAMPLES=1000.
settings.register_profile(
    "here", deadline=None, derandomize="CI" in os.environ, max_examples=int(os.environ.get("LABELWISE_EXAMPLES", "30"))
)
settings.load_profile("here")
# Here and not in a fixture: those of modules and of the session save classifiers, too, and are made before any of a test.
export_encoder.export_torch_encoder = quick_onnx.written
typer.main.get_command = cache(typer.main.get_command)  # the shell has the same verbs in every test
case.SECONDS = 0.01  # of timing for a report; the product takes 40 times that
CHANNELS = ([0], [1], [2], [0, 1], [1, 2], [0, 2])
COLOURS = ("red", "green", "blue", "yellow", "cyan", "purple")


def pytest_configure(config: pytest.Config) -> None:
    """Files of tests lie in memory where there is room: services and checkpoints wait for the disk thousands of times."""
    config.addinivalue_line("markers", "torch_export: saves encoders as the product does, by torch.export")
    memory = Path("/dev/shm")
    if "TMPDIR" not in os.environ and memory.is_dir() and shutil.disk_usage(memory).free > 4 * 2**30:
        os.environ["TMPDIR"] = tempfile.tempdir = str(memory)
    once.begin()


def pytest_unconfigure() -> None:
    once.end()


def blobs(labels: int = 4, per_label: int = 60, side: int = 8, seed: int = 0) -> Dataset:
    """Easy pictures: each label is a bright square of its own colour, on noise; vectors and sentences name the colour."""
    made = torch.Generator().manual_seed(seed)
    targets = torch.arange(labels).repeat(per_label)
    images = torch.randint(0, 90, (len(targets), 3, side, side), generator=made, dtype=torch.uint8)
    vectors = torch.zeros(labels, 3)
    for label in range(labels):
        vectors[label, CHANNELS[label]] = 1.0
    place, pixel = torch.arange(len(targets))[:, None] % 9, torch.arange(side)
    down, across = (2 * corner for corner in (place // 3, place % 3))
    tall, wide = ((pixel >= start) & (pixel < start + 3) for start in (down, across))
    images[vectors[targets].bool()[:, :, None, None] & tall[:, None, :, None] & wide[:, None, None, :]] += 150
    names = tuple(f"blob {i}" for i in range(labels))
    texts = tuple((f"a {COLOURS[i]} square", f"this one is {COLOURS[i]}") for i in range(labels))
    third = len(targets) // 3
    parts = {"train": slice(0, third), "val": slice(third, 2 * third), "test": slice(2 * third, None)}
    splits = {name: Split(images=images[rows], targets=targets[rows]) for name, rows in parts.items()}
    return Dataset(name="blobs", labels=Labels(names=names, vectors=vectors, texts=texts), splits=splits)


def squares(images: int = 240, side: int = 8, seed: int = 0) -> Dataset:
    """Pictures with a red, a green and a blue square, each there or not: several labels may be true, or none."""
    made = torch.Generator().manual_seed(seed)
    truths = torch.rand(images, 3, generator=made) < 0.45
    pixels = torch.randint(0, 90, (images, 3, side, side), generator=made, dtype=torch.uint8)
    for row, colour in truths.nonzero().tolist():
        top, left = divmod((row + 4 * colour) % 9, 3)
        pixels[row, colour, top * 2 : top * 2 + 3, left * 2 : left * 2 + 3] += 150
    third = images // 3
    parts = {"train": slice(0, third), "val": slice(third, 2 * third), "test": slice(2 * third, None)}
    splits = {name: Split(images=pixels[rows], targets=truths[rows]) for name, rows in parts.items()}
    return Dataset(name="squares", labels=Labels(names=("red", "green", "blue")), splits=splits)


@once.once
def colour_weights() -> str:
    """The file of a convnet's weights that tell colours apart; a method that reads no label cannot learn that itself."""
    from labelwise.fitting.fit import fit
    from labelwise.fitting.rebuild import model_of

    model = model_of(fit(blobs(6), quick("softmax"), Run(device="cpu")))
    assert isinstance(model, HeadModel)
    file = once.folder() / "colours.safetensors"
    state = {name: tensor.contiguous() for name, tensor in model.encoder.backbone.state_dict().items()}
    save_file(state, file)
    return str(file)


def quick(name: str, epochs: int = 30) -> Method:
    """A method with settings for a second of training."""
    kind = METHODS[name]
    encoder = Encoder(backbone="convnet", width=8)
    if issubclass(kind, ZeroLabel | Discriminant):
        frozen = replace(encoder, weights=colour_weights(), frozen=True)
        return kind(encoder=frozen, restarts=3, search=20) if issubclass(kind, ZeroLabel) else kind(encoder=frozen)
    assert issubclass(kind, ImageMethod)
    if issubclass(kind, Izf | Cgan):
        own = Optimizer(lr=0.05)
        return kind(epochs=6, hidden=32, batch=20, encoder=encoder, encoder_optimizer=own, encoder_epochs=epochs)
    made = kind(epochs=epochs, batch=20, encoder=encoder, optimizer=Optimizer(lr=0.05), augment=Augment())
    return (
        replace(made, head="mean") if isinstance(made, Prototype) else made
    )  # sim alone teaches blobs at .85, the limit


@pytest.fixture(autouse=True)
def _torch_export(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save trained encoders as the product does in tests that are marked ``torch_export``."""
    if request.node.get_closest_marker("torch_export") is not None:
        monkeypatch.setattr(export_encoder, "export_torch_encoder", quick_onnx.WRITE)


@pytest.fixture(scope="session")
def blob_data() -> Dataset:
    return blobs()


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not walk it again and again."""
    gc.collect()
    gc.freeze()
