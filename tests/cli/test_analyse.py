"""The verb analyse as a user meets it."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.core.store import save
from labelwise.data import load
from labelwise.evaluation.evaluation import Evaluation
from labelwise_papers.analyses.answers import answer_calibration, yes_rates
from labelwise_papers.analyses.joint import joint_view
from labelwise_papers.analyses.neighbours import nearest_labels
from labelwise_papers.analyses.probe import probe_embeddings
from labelwise_papers.analyses.saliency import salient_share
from tests.conftest import quick
from tests.pixels_of import px

WORDS = ("saliency", "probe", "neighbours", "answers", "joint", "calibration")


@pytest.fixture(scope="module")
def model(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "blobs.lw"
    save(lw.fit(load(str(pictures), size=8), quick("indicator", 8), lw.Run(device="cpu")), path)
    return path


def analysed(run: Any, *words: object) -> Any:
    code, out, err = run("analyse", *words, "--device", "cpu", "--json")
    assert code == 0, err
    return json.loads(out)


def test_figures_are_those_of_the_functions(run: Any, model: Path, pictures: Path) -> None:
    classifier, data = lw.load(model), load(str(pictures), size=8)
    train, test, labels = data.split("train"), data.split("test"), data.labels
    found = {what: analysed(run, model, pictures, "--what", what) for what in WORDS}
    order = torch.tensor([classifier.labels.index(name) for name in labels.names])
    share = salient_share(classifier, px(train), order[train.targets])
    assert (found["saliency"]["share"], found["saliency"]["split"]) == (pytest.approx(share["share"]), "train")
    assert (
        found["probe"]["probe"]
        == probe_embeddings(Evaluation.of(classifier, train, labels), Evaluation.of(classifier, test, labels))["probe"]
    )
    rates = yes_rates(Evaluation.of(classifier, test, labels))
    assert found["answers"]["raw"]["right"] == rates["raw"]["right"]
    assert found["answers"]["calibrated"]["zeros"] == rates["calibrated"]["zeros"]
    near = [one["nearest"] for one in nearest_labels(classifier)["labels"]]
    assert [one["nearest"] for one in found["neighbours"]["labels"]] == near
    calibration = answer_calibration(Evaluation.of(classifier, test, labels))
    assert found["calibration"]["balanced"]["after"]["brier"] == pytest.approx(
        calibration["balanced"]["after"]["brier"]
    )
    bins = found["calibration"]["every"]["before"]["bins"]
    assert sum(one["count"] for one in bins) == calibration["every"]["pairs"]
    view = joint_view(classifier.scores(px(train)), order[train.targets], classifier.scores(px(test)[:1]))
    assert [one["label"] for one in found["joint"]["asked"]] == list(view.names)
    assert [one["distance"] for one in found["joint"]["asked"]] == pytest.approx(view.distances.tolist())
    assert found["joint"]["label"] == labels.names[int(test.targets[0])]


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("saliency", "pixels with a heat map above 0.5"),
        ("probe", "logistic regression on the codes of 40 training images"),
        ("neighbours", "distances between label embeddings"),
        ("answers", "a label input of zeros"),
        ("joint", "an image of blob"),
        ("calibration", "the true label and a wrong one 80 before"),
    ],
)
def test_tables(run: Any, model: Path, pictures: Path, what: str, said: str) -> None:
    code, out, err = run("analyse", model, pictures, "--what", what, "--device", "cpu")
    assert code == 0, err
    assert said in " ".join(out.split())


@pytest.mark.parametrize("what", ["saliency", "joint", "calibration"])
def test_pictures(run: Any, model: Path, pictures: Path, tmp_path: Path, what: str) -> None:
    path = tmp_path / "new" / f"{what}.png"
    found = analysed(run, model, pictures, "--what", what, "--out", path)
    assert found["out"] == str(path)
    with Image.open(path) as picture:
        assert min(picture.size) > 400
        assert len(picture.convert("RGB").getcolors(2**24) or ()) > 50


def test_the_limit_is_drawn_from_all_labels(run: Any, model: Path, pictures: Path) -> None:
    words = (model, pictures, "--what", "answers", "--limit", 12)
    first, again, other = (analysed(run, *words, "--seed", seed) for seed in (0, 0, 3))
    assert first["images"] == 12
    assert first == again
    assert first != other
    assert analysed(run, model, pictures, "--what", "probe", "--limit", 30)["train_images"] == 30


def test_images_of_training_are_told(run: Any, model: Path, pictures: Path) -> None:
    _, _, err = run("analyse", model, pictures, "--what", "answers", "--split", "train", "--device", "cpu")
    assert "Warning: 100.0 % of these images were used to train" in " ".join(err.split())
    _, _, err = run("analyse", model, pictures, "--what", "saliency", "--device", "cpu")
    assert "Warning" not in err, "heat maps are looked at on training images"


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--what", "probe"], 2, "The analysis probe needs data"),
        (["digits", "--what", "answers"], 1, "does not know these labels of the data: zero"),
        (["digits", "--what", "probe", "--out", "a.png"], 2, "no plot of probe; leave --out out, or choose"),
        (["digits", "--what", "joint", "--out", "a.txt"], 2, "written as .png, .svg, .pdf; given a.txt"),
        (["digits", "--what", "tables"], 2, "'tables' is not one of"),
        (["digits"], 2, "Missing option '--what'"),
    ],
)
def test_wrong_use(
    run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    got, out, err = run("analyse", model, *words, "--device", "cpu")
    assert (got, out) == (code, "")
    assert message in " ".join(err.replace("│", " ").split())
    assert list(tmp_path.iterdir()) == []


def test_neighbours_need_no_data(run: Any, model: Path) -> None:
    found = analysed(run, model, "--what", "neighbours")
    assert (found["data"], found["split"], len(found["labels"])) == (None, None, 4)
