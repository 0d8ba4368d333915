import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import labelwise as lw
from labelwise.cli.verbs import app
from labelwise.data import finches
from labelwise.methods import Encoder, ZeroLabel
from labelwise.support.errors import DataError, UsageError
from labelwise.train.export_encoder import export_encoder
from labelwise.train.model import as_float
from labelwise.train.networks.image_encoder import ImageEncoder
from labelwise.train.networks.patches import EMBEDDING_SIZE, Patches, PatchNet, find_patches
from labelwise.train.pretraining import read_encoder, write_encoder
from tests.pixels_of import px

SMALL = Patches(width=60)


@pytest.fixture(scope="module")
def birds() -> torch.Tensor:
    return px(finches(per_species=10).split("train"))


@pytest.fixture(scope="module")
def found(birds: torch.Tensor) -> ImageEncoder:
    return find_patches(birds, SMALL)


def embeddings(encoder: ImageEncoder, images: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return encoder(as_float(images))  # type: ignore[no-any-return]


def test_embeddings_are_uncorrelated_and_of_variance_one(found: ImageEncoder, birds: torch.Tensor) -> None:
    made = embeddings(found, birds).double()
    assert made.shape == (len(birds), EMBEDDING_SIZE)
    assert made.mean(0).abs().max() < 1e-2
    assert torch.allclose(made.T @ made / len(made), torch.eye(EMBEDDING_SIZE, dtype=torch.float64), atol=0.02)


@pytest.mark.torch_export
def test_it_is_exported_for_any_number_of_images(found: ImageEncoder, birds: torch.Tensor) -> None:
    exported = export_encoder(found)
    for count in (1, 4):
        images = birds[:count]
        assert abs(exported(images.numpy()) - embeddings(found, images).numpy()).max() < 1e-3


def test_the_same_seed_finds_the_same(found: ImageEncoder, birds: torch.Tensor) -> None:
    again, other = find_patches(birds, SMALL), find_patches(birds, SMALL, seed=1)
    assert torch.equal(embeddings(again, birds[:5]), embeddings(found, birds[:5]))
    assert not torch.equal(embeddings(other, birds[:5]), embeddings(found, birds[:5]))


def test_a_mirror_image_is_nearer_than_other_pictures(found: ImageEncoder, birds: torch.Tensor) -> None:
    """Random weights, too, keep a mirror image; a darker picture has to be learned."""
    own, darker = embeddings(found, birds), embeddings(found, (birds.float() * 0.8).to(torch.uint8))
    nearest = torch.cdist(darker, own).argmin(1)
    assert (nearest == torch.arange(len(birds))).float().mean() > 0.9
    rough = ImageEncoder(PatchNet((3, 48, 48), 60), (3, 48, 48))
    rough.fit_normalisation(birds)
    before, after = embeddings(rough, birds), embeddings(rough, (birds.float() * 0.8).to(torch.uint8))
    assert (torch.cdist(after, before).argmin(1) == torch.arange(len(birds))).float().mean() < 0.9


def test_surroundings_count_little() -> None:
    """Another rim changes pooled activations less than another middle does."""
    torch.manual_seed(0)
    network = PatchNet((3, 32, 32), 50)
    image = torch.rand(1, 3, 32, 32)
    middle, rim = image.clone(), torch.rand(1, 3, 32, 32)
    middle[..., 8:24, 8:24] = rim[..., 8:24, 8:24]
    rim[..., 8:24, 8:24] = image[..., 8:24, 8:24]
    with torch.no_grad():
        same, other_middle, other_rim = (network.activations(network.maps(each)) for each in (image, middle, rim))
    assert (other_rim - same).norm() < 0.5 * (other_middle - same).norm()


def test_a_file_holds_all_of_it(found: ImageEncoder, birds: torch.Tensor, tmp_path: Path) -> None:
    file = tmp_path / "patches.safetensors"
    write_encoder(file, found, Encoder(backbone="patches", width=60), {})
    settings = read_encoder(file)
    assert (settings.backbone, settings.width) == ("patches", 60)
    again = settings.build((3, 48, 48))
    again.fit_normalisation(birds)
    assert torch.allclose(embeddings(again, birds[:5]), embeddings(found, birds[:5]), atol=1e-4)


def test_a_gradient_reaches_every_part() -> None:
    network = PatchNet((1, 16, 16), 50)
    network(torch.rand(3, 1, 16, 16)).square().sum().backward()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any(), name


def test_wrong_use_is_told() -> None:
    with pytest.raises(UsageError, match="at least 40 patches; given 10"):
        Patches(width=10)
    with pytest.raises(DataError, match="more than 40 images; given 3"):
        find_patches(torch.zeros(3, 3, 16, 16, dtype=torch.uint8))
    with pytest.raises(UsageError, match="8 pixels a side or more"):
        PatchNet((3, 6, 6))


def test_from_the_shell_and_into_a_classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = finches(per_species=20)
    monkeypatch.setattr("labelwise.images.catalogue.finches", lambda: few)
    file = tmp_path / "p.safetensors"
    words = ["pretrain", "finches", "--kind", "patches", "--set", "width=50", "--out", str(file), "--json", "--probe"]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)
    assert told["kind"] == "patches"
    assert told["neighbours"]["accuracy"] > 0.2  # guessing: 0.033
    encoder = Encoder(backbone="patches", width=50, weights=str(file), frozen=True)
    named = lw.fit(few, ZeroLabel(encoder=encoder, restarts=2, search=10), lw.Run(device="cpu"))
    assert len(named.labels) == 30
