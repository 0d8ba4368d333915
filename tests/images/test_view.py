"""How a picture is brought to a model: each field as slow steps of PIL do it, and the same in Python, shell, service and ONNX."""

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.module import register_module_forward_pre_hook

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.export import export
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.encoders.encode import encode
from labelwise.encoders.encoder import Encoder as EncoderProtocol
from labelwise.evaluation.test_set import select_test_set
from labelwise.fitting.encoding import encode_with
from labelwise.fitting.fit import fit
from labelwise.images.as_images import as_images
from labelwise.images.describe.labels import Labels
from labelwise.images.view import WHOLE, View
from labelwise.methods import Encoder, Softmax
from labelwise.methods.registry import method_of
from labelwise.methods.shared.linear import SoftmaxModel
from labelwise.support.errors import UnsupportedError, UsageError
from labelwise.tasks.gallery_files import gallery_of_files
from labelwise.train.augment import Augment
from labelwise.train.export_encoder import export_encoder
from labelwise.train.method import Run
from labelwise.train.model import Spec
from labelwise.train.networks.backbone import Backbone
from labelwise.train.networks.encoder import side_for
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.torch_encoder import TorchEncoder
from labelwise.train.pixels import pixels
from labelwise_papers.attacks.attack import answers_of, attack, scores_of
from tests.changed import bind_model, model_of
from tests.cli.conftest import run as run
from tests.conftest import blobs
from tests.pixels_of import px
from tests.server.asking import serving

SMALL = Encoder(backbone="convnet", width=4)
ODD = View(crop=0.75, size=10, fit="stretch", mirror=True)
WORDS = ("view.crop=0.75", "view.size=10", "view.fit=stretch", "view.mirror=true")


def picture(width: int, height: int, seed: int = 0) -> Image.Image:
    coarse = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC)


def seeing(view: View, side: int = 16) -> Classifier:
    """A classifier with random weights that sees images so."""
    torch.manual_seed(0)
    spec = Spec(shape=(3, side, side), labels=Labels(names=("a", "b")), view=view)
    return bind_model(SoftmaxModel(spec, SMALL), spec.labels, Softmax(encoder=SMALL, view=view))


class Mirror(Backbone):
    """A network whose features are the pixels that it is handed."""

    def maps(self, x: Tensor) -> Tensor:
        raise UnsupportedError("pixels are not pooled")

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)


def network_of(view: View, side: int) -> ImageEncoder:
    """An image encoder whose features are what its network sees."""
    shape = (3, side, side)
    return ImageEncoder(Mirror(prod(view.seen(shape))), shape, view=view)


def seen(encoder: EncoderProtocol, view: View, images: object) -> np.ndarray:
    """What a network sees of an image, as bytes ``[h, w, c]`` in float; the mean of it and its mirror image where it sees both."""
    features = encode(encoder, as_images(images), cache=False).values
    return np.moveaxis(255 * features.reshape(view.seen(encoder.shape)), 0, 2)


def slowly(image: Image.Image, view: View, side: int) -> np.ndarray:
    """The same by PIL, one step after another."""
    if view.fit == "stretch":
        square = image.resize((side, side), Image.Resampling.BILINEAR)
    else:
        square = ImageOps.fit(image, (side, side), Image.Resampling.BILINEAR)
    if view.crop is not None:
        kept = int(view.crop) if view.crop > 1 else round(side * view.crop)
        start = (side - kept) // 2
        square = square.crop((start, start, start + kept, start + kept))
    if view.size is not None:
        square = square.resize((view.size, view.size), Image.Resampling.BICUBIC)
    both = [square, ImageOps.mirror(square)] if view.mirror else [square]
    mean: np.ndarray = np.mean([np.asarray(each, np.float32) for each in both], 0)
    return mean


@pytest.mark.parametrize("side", [16, 21])
@pytest.mark.parametrize(
    "view",
    [WHOLE, View(crop=0.75), View(crop=9), View(fit="stretch"), View(mirror=True), View(size=8), View(size=24), ODD],
    ids=str,
)
def test_the_network_sees_what_slow_steps_give(view: View, side: int, tmp_path: Path) -> None:
    file = tmp_path / "wide.png"
    image = picture(3 * side, side)  # cut in whole pixels, so that PIL's own cutting agrees
    image.save(file)
    encoder, wanted = TorchEncoder(network_of(view, side)), slowly(image, view, side)
    for given in (str(file), image, np.asarray(image)):
        got = seen(encoder, view, given)
        assert got.shape == wanted.shape
        # Where nothing is brought to a size, to the bit; else PIL rounds to bytes on the way.
        assert np.abs(got - wanted).max() < (3.0 if view.size else 1e-3)


@pytest.mark.parametrize("view", [View(crop=9), ODD], ids=str)
def test_the_graph_that_answers_sees_what_the_network_saw(view: View) -> None:
    encoder = export_encoder(network_of(view, 16))
    image = picture(48, 16)
    assert np.abs(seen(encoder, view, image) - slowly(image, view, 16)).max() < (3.0 if view.size else 1e-3)


def test_a_mirror_image_counts_as_much_and_never_in_training() -> None:
    images = torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8)
    plain, both = seeing(WHOLE), seeing(View(mirror=True))
    mean = (plain.encode(images) + plain.encode(images.flip(3))) / 2
    assert np.allclose(both.encode(images), mean, atol=1e-6)
    assert np.allclose(both.encode(images), both.encode(images.flip(3)), atol=1e-6)
    assert np.allclose(both.scores(images).raw, (plain.scores_of(mean)).raw, atol=1e-6)
    heat, mirrored = (lw.explain(both, each[:1], "a").heat for each in (images, images.flip(3)))
    assert np.allclose(heat, mirrored[:, ::-1], atol=1e-5)
    network = model_of(both).encoder
    assert network.eval().mirrors
    assert not network.train().mirrors


def test_training_takes_crops_whole_and_answers_see_the_centre() -> None:
    data = blobs(side=12, per_label=12)
    method = Softmax(encoder=SMALL, epochs=1, augment=Augment(size=8), view=View(crop=8))
    sizes: set[tuple[int, ...]] = set()

    def note(module: Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, Backbone):
            sizes.add(tuple(inputs[0].shape[1:]))

    hook = register_module_forward_pre_hook(note)
    try:
        classifier = fit(data, method, Run(device="cpu"))
    finally:
        hook.remove()
    assert sizes == {(3, 8, 8)}
    images = px(data.split("test"))
    whole = classifier.scores(images).raw
    outside, inside = images.clone(), images.clone()
    outside[:, :, :2], outside[:, :, :, -2:] = 0, 255
    inside[:, :, 2] = 0
    assert np.array_equal(classifier.scores(outside).raw, whole), "what lies outside the centre is not seen"
    assert not np.array_equal(classifier.scores(inside).raw, whole)


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of wide pictures, and a classifier fitted on it, with no field of its view the usual one."""
    root = tmp_path_factory.mktemp("view")
    data = blobs(labels=2, per_label=30, side=12)
    for i, (image, target) in enumerate(zip(px(data.split("train")), data.split("train").targets, strict=True)):
        file = root / "pictures" / data.labels.names[target] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((40, 24)).save(file)
    method = Softmax(encoder=Encoder(width=4), epochs=1, view=ODD)
    save(fit(lw.data.load(root / "pictures", size=16), method, Run(device="cpu")), root / "odd.lw")
    return root / "pictures", root / "odd.lw"


def test_shell_python_and_service_answer_alike(odd: tuple[Path, Path], tmp_path: Path, run: Any) -> None:
    pictures, saved = odd
    about = json.loads((saved / "classifier.json").read_text())
    assert about["method"]["settings"]["view"] == {"size": 10, "crop": 0.75, "fit": "stretch", "mirror": True}
    classifier = load(saved)
    assert method_of(classifier).view == ODD
    file = sorted(pictures.rglob("*.png"))[0]
    scores = classifier.scores(str(file))
    square = Image.open(file).resize((16, 16), Image.Resampling.BILINEAR)
    assert np.array_equal(scores.raw, classifier.scores(square).raw)
    wanted = [probability for _, probability in scores.top(2)[0]]
    words = [word for each in (*WORDS, "encoder.width=4") for word in ("--set", each)]
    method = ("--method", "softmax", "--encoder", "none", "--set", "epochs=1", "--size", 16)
    code, _, notes = run("fit", pictures, "--out", tmp_path / "shell.lw", *method, *words)
    assert code == 0, notes
    code, printed, _ = run("classify", tmp_path / "shell.lw", file, "--json")
    told = json.loads(printed)["predictions"][0]
    assert [one["probability"] for one in told["top"]] == pytest.approx(wanted, abs=1e-6)
    with serving(saved) as client:
        answer = client.post("/classify", content=file.read_bytes(), headers={"Content-Type": "image/png"}).json()
        assert any("stretched" in line for line in client.get("/card").json()["limits"])
    assert [one["probability"] for one in answer["top"]] == pytest.approx(wanted, abs=1e-6)


def test_every_reader_of_images_stretches(odd: tuple[Path, Path]) -> None:
    pictures, saved = odd
    classifier, files = load(saved), [str(file) for file in sorted(pictures.rglob("*.png"))]
    wanted = classifier.scores(files).embeddings
    assert np.allclose(gallery_of_files(classifier, files)[0].embeddings, wanted, atol=1e-6)
    data = lw.data.load(pictures, size=16)
    own = select_test_set(classifier, data, "all").split
    order = [files.index(file) for file in own.files]
    assert np.allclose(classifier.encode(own.images), wanted[order], atol=1e-6)
    features = encode_with(data, classifier).split("train")
    rows = [files.index(file) for file in features.files]
    assert np.allclose(features.images.values, wanted[rows], atol=1e-6)
    read = pixels(as_images(files), (3, 16, 16), "stretch")
    assert np.array_equal(read, classifier.batch(files))
    assert not torch.equal(read, pixels(as_images(files), (3, 16, 16)))


def test_the_exported_graph_sees_the_same(odd: tuple[Path, Path], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    classifier = load(odd[1])
    file = export(classifier, tmp_path / "model.onnx").file
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    images = classifier.batch([str(path) for path in sorted(odd[0].rglob("*.png"))[:3]])
    (scores,) = session.run(["scores"], {"images": images})
    assert np.abs(scores - classifier.scores(images).log_odds).max() < 1e-4
    assert json.loads(session.get_modelmeta().custom_metadata_map["fit"]) == "stretch"


def test_heat_lies_where_the_network_looks() -> None:
    classifier, inner = seeing(View(crop=8), side=16), seeing(WHOLE, side=8)
    weights = model_of(inner).state_dict()
    assert all(torch.equal(each, weights[name]) for name, each in model_of(classifier).state_dict().items())
    images = torch.randint(0, 256, (1, 3, 16, 16), dtype=torch.uint8)
    heat = lw.explain(classifier, images, "a").heat
    assert heat.shape == (16, 16)
    assert heat[4:12, 4:12].any()
    assert np.array_equal(heat[4:12, 4:12], lw.explain(inner, images[:, :, 4:12, 4:12], "a").heat)
    heat[4:12, 4:12] = 0
    assert not heat.any()


def test_an_attack_is_on_what_is_seen() -> None:
    classifier = seeing(View(crop=8), side=16)
    attacked = attack(classifier, torch.randint(0, 256, (2, 3, 16, 16), dtype=torch.uint8))
    inner = attacked.clean.clone()
    inner[:, :, 4:12, 4:12] = attacked.images[:, :, 4:12, 4:12]
    answers = answers_of(scores_of(classifier), inner, 2).tolist()
    assert tuple(classifier.labels.names[answer] for answer in answers) == attacked.answers
    assert not torch.equal(inner, attacked.clean)


def test_pictures_are_read_so_that_what_is_kept_has_the_size_of_the_network() -> None:
    assert side_for(Encoder(size=224), View(crop=0.875)) == 256
    assert side_for(Encoder(), View(crop=0.5)) == 128
    assert Encoder().side(View(crop=0.5)) is None
    assert Encoder().side(View(size=32)) == Encoder(size=32).side() == 32
    for size in range(1, 300):
        for crop in (0.3, 0.5, 0.7, 0.875, 0.9, 1.0):
            side = View(crop=crop).side(size)
            assert View(crop=crop).seen((3, side, side)) == (3, size, size)
    with pytest.raises(UsageError, match="say how large, with --size"):
        side_for(Encoder(size=224), View(crop=224))


def test_what_cannot_be_seen_is_refused(tmp_path: Path) -> None:
    labels = Labels(names=("a", "b"))
    with pytest.raises(UsageError, match=r"16 numbers each. Leave out view.crop=0.5, view.mirror=True"):
        Spec(shape=(16,), labels=labels, view=View(crop=0.5, mirror=True))
    data = blobs(per_label=12)
    numbers = {name: replace(split, images=px(split).flatten(1).float()) for name, split in data.splits.items()}
    with pytest.raises(UsageError, match="how images are brought to a network"):
        fit(replace(data, splits=numbers), Softmax(epochs=1, view=View(fit="stretch")), Run(device="cpu"))
    with pytest.raises(UsageError, match=r"more than there is of images \[3, 8, 8\]"):
        fit(data, Softmax(epochs=1, view=View(crop=9)), Run(device="cpu"))
    with pytest.raises(UsageError, match="Keep one of them"):
        Encoder(size=8).build((3, 16, 16), View(size=9))
    for wrong in ({"size": 0}, {"crop": 0.0}, {"crop": -1}, {"crop": 2.5}, {"crop": float("nan")}, {"fit": "bend"}):
        with pytest.raises(UsageError, match=f"view.{next(iter(wrong))}"):
            View(**wrong)


@pytest.mark.parametrize("crop", [0, -0.5, 1.5, float("inf"), float("nan")])
def test_a_crop_that_is_neither_a_share_nor_pixels_is_refused(crop: float) -> None:
    with pytest.raises(UsageError, match=r"view\.crop is a share"):
        View(crop=crop)
