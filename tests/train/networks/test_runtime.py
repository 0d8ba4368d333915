"""A frozen network gives the same features whatever runs it."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event, get_ident
from time import sleep

import pytest
import torch
from torch import Tensor

from labelwise.images.streams import on_device
from labelwise.images.view import WHOLE, View
from labelwise.support.errors import LabelwiseWarning, UnsupportedError
from labelwise.train.networks import runtime
from labelwise.train.networks.backbones import build_backbone
from labelwise.train.networks.folding import folded, onnx_file
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.networks import ConvNet

NETWORKS = ("convnet", "resnet18", "resnet50", "vgg11_bn", "wrn28_10", "efficientnet_lite0")


@pytest.fixture(autouse=True)
def every_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small networks are run as large ones are."""
    monkeypatch.setattr(runtime, "SMALL", 0)


def network(name: str, shape: tuple[int, ...]) -> ImageEncoder:
    """Return a frozen encoder whose batch norms do something, as those of trained weights do."""
    torch.manual_seed(0)
    view = View(size=None, crop=0.875) if shape[1] == shape[2] else WHOLE
    backbone = build_backbone(name, view.seen(shape), None if name == "efficientnet_lite0" else 4)
    for part in backbone.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            for tensor in (part.weight.data, part.running_mean, part.running_var):
                assert tensor is not None
                tensor.uniform_(0.5, 1.5)
            part.bias.data.normal_()
    return ImageEncoder(backbone, shape, frozen=True, view=view).eval()


def noise(n: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randint(0, 256, (n, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def slow(encoder: ImageEncoder, images: Tensor) -> Tensor:
    """Return features as the plain network makes them, one picture at a time."""
    rows = []
    for image in torch.split(images, 1):
        x = encoder.prepare(image.float() / 255)
        row = encoder.backbone(x)
        rows.append((row + encoder.backbone(x.flip(3))) / 2 if encoder.view.mirror else row)
    return torch.cat(rows).detach()


def differ(ours: Tensor, wanted: Tensor) -> float:
    return float((ours - wanted).abs().max()) / max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("by", ["onnxruntime", "folded"])
@pytest.mark.parametrize("shape", [(3, 64, 64), (3, 37, 50)])
@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_those_of_the_network(
    name: str, shape: tuple[int, ...], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "folded":
        monkeypatch.setattr(runtime, "find_spec", lambda _: None)
    else:
        pytest.importorskip("onnxruntime")
    monkeypatch.setattr(runtime, "FEW", 2)
    encoder, images = network(name, shape), noise(6, shape)
    assert differ(encoder.features(images), slow(encoder, images)) <= runtime.TOLERANCE
    assert by in encoder.runtime.used
    encoder.view = replace(encoder.view, mirror=True)
    assert differ(encoder.features(images.clone()), slow(encoder, images)) <= runtime.TOLERANCE


def test_few_pictures_do_not_pay_for_a_graph_and_many_do() -> None:
    pytest.importorskip("onnxruntime")
    encoder = network("convnet", (3, 16, 16))
    encoder.features(noise(runtime.FEW // 2, (3, 16, 16)))
    assert encoder.runtime.used.startswith("torch")
    encoder.features(noise(runtime.FEW + 1, (3, 16, 16)))
    assert encoder.runtime.used.startswith("onnxruntime")
    encoder.features(noise(0, (3, 16, 16)))
    assert encoder.runtime.used.startswith("onnxruntime"), "no picture, nothing was run"


def test_other_weights_other_sizes_and_copies_are_run_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW", 0)
    encoder, images = network("convnet", (3, 16, 16)), noise(3, (3, 16, 16))
    before = encoder.features(images)
    with torch.no_grad():
        next(encoder.backbone.parameters()).mul_(2)
    assert differ(encoder.features(images.clone()), slow(encoder, images)) <= 1e-4
    assert differ(before, slow(encoder, images)) > 1e-2
    large = noise(3, (3, 24, 20))
    assert differ(encoder.features(large), slow(encoder, large)) <= 1e-4
    for twin in (copy.deepcopy(encoder), pickle.loads(pickle.dumps(encoder))):
        assert differ(twin.features(images.clone()), slow(encoder, images)) <= 1e-4


@pytest.mark.parametrize("threads", [1, 3])
def test_pieces_side_by_side_stay_in_order(threads: int) -> None:
    before, seen = torch.get_num_threads(), []

    def work(part: Tensor) -> Tensor:
        seen.append((get_ident(), torch.get_num_threads(), torch.is_grad_enabled()))
        sleep(0.002 * float(part.detach()[0] % 2))
        return part * 2

    torch.set_num_threads(threads)
    try:
        images = torch.arange(20.0).requires_grad_()
        assert torch.cat([*runtime.side_by_side(work, torch.split(images, 1), torch.device("cpu"))]).equal(images * 2)
        assert torch.get_num_threads() == threads
        assert not [*runtime.side_by_side(work, (), torch.device("cpu"))]
    finally:
        torch.set_num_threads(before)
    workers = {ident for ident, _, _ in seen}
    assert workers == {get_ident()} if threads == 1 else workers.isdisjoint([get_ident()])
    assert {(number, grad) for _, number, grad in seen} == {(1, False)}


def test_an_error_in_one_piece_is_raised() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)

    def work(part: Tensor) -> Tensor:
        raise UnsupportedError("this one")

    try:
        with pytest.raises(UnsupportedError, match="this one"):
            list(runtime.side_by_side(work, torch.split(torch.arange(4), 1), torch.device("cpu")))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_features_do_not_depend_on_how_many_threads_make_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW", 0)
    images, before, features = noise(30, (3, 24, 24)), torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            features.append(network("convnet", (3, 24, 24)).features(images))
        finally:
            torch.set_num_threads(before)
    assert differ(*features) <= 1e-6


def test_gradients_go_through_the_network_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW", 0)
    encoder, images = network("convnet", (3, 16, 16)), (noise(2, (3, 16, 16)).float() / 255).requires_grad_()
    encoder(images).sum().backward()
    assert images.grad is not None
    assert bool(images.grad.any())


def test_what_runs_wrong_or_not_at_all_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW", 0)
    images = noise(2, (3, 16, 16))
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "onnx_file", lambda *_: b"damaged")
        encoder = network("convnet", (3, 16, 16))
        assert differ(encoder.features(images), slow(encoder, images)) <= 1e-4
        assert "folded" in encoder.runtime.used
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "_session", lambda *_: (lambda x: x.new_zeros(len(x), 32), "onnxruntime"))
        encoder = network("convnet", (3, 16, 16))
        assert differ(encoder.features(images), slow(encoder, images)) <= 1e-4
        assert "folded" in encoder.runtime.used


class Choosing(ConvNet):
    """A network whose way depends on what it sees."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * (2 if x.sum() > 0 else 1)


def test_a_network_that_cannot_be_traced_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "FEW", 0)
    backbone, images = Choosing((3, 16, 16), width=4), noise(2, (3, 16, 16))
    with pytest.raises(UnsupportedError):
        folded(backbone)
    encoder = ImageEncoder(backbone, (3, 16, 16), frozen=True)
    assert differ(encoder.features(images), slow(encoder, images)) <= 1e-5
    assert encoder.runtime.used == f"torch {torch.__version__}"


def test_a_step_that_no_operation_is_known_for_is_an_error() -> None:
    with pytest.raises(UnsupportedError, match="leaky_relu"):
        onnx_file(folded(build_backbone("resnet12", (3, 16, 16), 4).eval()), torch.zeros(1, 3, 16, 16))


def test_a_network_is_folded_while_another_thread_runs_it() -> None:
    encoder = network("efficientnet_lite0", (3, 32, 32))
    images = encoder.prepare(noise(2, encoder.shape).float() / 255)
    wanted, done = encoder.backbone(images).detach(), Event()

    def run() -> list[Tensor]:
        made = []
        while not done.is_set():
            made.append(encoder.backbone(images).detach())
        return made

    with ThreadPoolExecutor(1) as pool:
        others = pool.submit(run)
        try:
            for _ in range(4):
                assert differ(folded(encoder.backbone)(images), wanted) < runtime.TOLERANCE
        finally:
            done.set()
        assert others.result()
        assert all(each.equal(wanted) for each in others.result())


on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def trunk(encoder: ImageEncoder, images: Tensor, times: int = 1) -> Tensor:
    """Return features of images on a GPU, made so many times."""
    with torch.no_grad():
        return [encoder.trunk(images.cuda().float() / 255) for _ in range(times)][-1].cpu()


@on_gpu
@pytest.mark.parametrize("frozen", [True, False])
def test_on_a_gpu_a_network_that_is_not_trained_is_recorded_in_half_precision(frozen: bool) -> None:
    encoder = network("resnet18", (3, 32, 32))
    images, wanted = noise(10, encoder.shape), slow(encoder, noise(10, encoder.shape))
    encoder = ImageEncoder(encoder.backbone, encoder.shape, frozen=frozen, view=encoder.view).eval().cuda()
    times = runtime.CALLS + runtime.WARM + 2
    assert differ(trunk(encoder, images), wanted) < runtime.OF_HALF
    assert "float16" not in encoder.runtime.used
    assert differ(trunk(encoder, images, times), wanted) < runtime.OF_HALF
    assert "float16" in encoder.runtime.used
    # Another number of images, others of the same number, and other weights.
    assert differ(trunk(encoder, images[:3], times), wanted[:3]) < runtime.OF_HALF
    assert differ(trunk(encoder, images.flip(0)), wanted.flip(0)) < runtime.OF_HALF
    with torch.no_grad():
        encoder.backbone.get_submodule("layer4.1.bn2").weight.zero_()  # type: ignore[operator]
    assert differ(trunk(encoder, images, times), wanted) > 0.05
    assert differ(trunk(encoder, images, times), slow(encoder.cpu(), images)) < runtime.OF_HALF


@on_gpu
def test_where_half_precision_does_not_reach_the_network_itself_answers() -> None:
    encoder = network("resnet18", (3, 32, 32))
    times = runtime.CALLS + runtime.WARM + 2
    with torch.no_grad():
        encoder.backbone.get_submodule("layer4.1.bn2").bias.fill_(1e5)  # type: ignore[operator]
    images, wanted = noise(4, encoder.shape), slow(encoder, noise(4, encoder.shape))
    assert differ(trunk(encoder.cuda(), images, times), wanted) < runtime.OF_HALF
    assert "float16 does not reach" in encoder.runtime.used


def test_pictures_that_half_precision_does_not_reach_are_told_once() -> None:
    backbone = network("resnet18", (3, 32, 32)).backbone
    images = noise(2, (3, 32, 32)).float() / 255
    with torch.no_grad():
        half = runtime._Replayed(folded(backbone), backbone, images[:1])
        assert differ(half(images), backbone(images)) < runtime.OF_HALF
        with pytest.warns(LabelwiseWarning, match="range of float16") as told:
            twice = [half(images * 1e6) for _ in range(2)]
        assert len(told) == 1
        assert all(each.equal(backbone(images * 1e6)) for each in twice)
        with pytest.raises(UnsupportedError, match="range of float16"):
            runtime._Replayed(folded(backbone), backbone, images * 1e6)


def test_what_lies_on_a_cpu_is_left_to_whoever_computes() -> None:
    parts = torch.split(noise(4, (3, 2, 2)), 2)
    assert all(one is other for one, other in zip(on_device(parts, torch.device("cpu")), parts, strict=True))
