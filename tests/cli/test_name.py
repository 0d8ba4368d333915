"""The command line where clusters are named: name."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.core.classifier import Classifier
from labelwise.core.load import load
from labelwise.core.store import save
from labelwise.evaluation.naming import cluster_images, named_clusters
from labelwise.images.dataset import Dataset
from labelwise.methods import Encoder, Softmax, ZeroLabel
from labelwise.methods.zero_label.naming import kept_together, overlap_agreement
from labelwise.methods.zero_label.rename import name_clusters, settled_names
from labelwise.reporting.naming_page import doubts
from labelwise.support.errors import UsageError
from tests.conftest import blobs
from tests.methods.test_zero_label import CPU, STRUCTURE, head_of, world
from tests.pixels_of import px


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier of features."""
    path = tmp_path_factory.mktemp("models") / "world.lw"
    save(lw.fit(world(), STRUCTURE, CPU), path)
    return path


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, train = tmp_path_factory.mktemp("data") / "world.npz", world().split("train")
    split = np.array(["train"] * len(train))
    np.savez(
        path,
        features=px(train).numpy(),
        labels=torch.as_tensor(train.targets).numpy(),
        classes=np.array(list("abcde")),
        split=split,
    )
    return path


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of pictures that are not sorted in any way."""
    root = tmp_path_factory.mktemp("plain")
    for i, image in enumerate(px(blobs(per_label=12).split("train"))):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / f"{i:03d} <b>.png")
    return root


@pytest.fixture(scope="module")
def picture_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = blobs(per_label=12)
    alike = replace(data.labels, similarity=torch.eye(len(data.labels)))
    whole = Dataset(name="blobs", labels=alike, splits=data.splits)
    method = ZeroLabel(encoder=Encoder(backbone="convnet", width=8), restarts=2, search=10)
    path = tmp_path_factory.mktemp("models") / "blobs.lw"
    save(lw.fit(whole, method, CPU), path)
    return path


def swapped(path: Path) -> dict[int, str]:
    """Answers that exchange the names of the first two clusters."""
    names = head_of(load(path)).names.tolist()
    return {0: "abcde"[names[1]], 1: "abcde"[names[0]]}


def test_clusters_are_listed_the_least_certain_first(run: Any, model: Path, features: Path) -> None:
    code, out, _ = run("name", model, features, "--json")
    found = json.loads(out)
    assert code == 0
    assert [one["certainty"] for one in found["clusters"]] == sorted(one["certainty"] for one in found["clusters"])
    assert sorted(one["label"] for one in found["clusters"]) == list("abcde")
    targets = torch.as_tensor(lw.data.load(features).split("train").targets)
    assert sum(one["images"] for one in found["clusters"]) == len(targets)
    assert all(len(one["examples"]) == 8 and one["sheet"] is None for one in found["clusters"])
    for one in found["clusters"]:
        rows = [int(name.removeprefix("train ")) for name in one["examples"]]
        assert {"abcde"[int(targets[row])] for row in rows} == {one["label"]}
    _, out, _ = run("name", model, features)
    assert out.count("train ") == 5 * 8
    code, out, err = run("name", model)
    assert code == 0
    assert "a guess" in out
    assert "%" not in out.splitlines()[1].split("a guess")[1].split()[0], "no certainty of a name that nobody checked"
    assert "No name was checked" in " ".join(err.split())


def test_answers_are_saved_and_add_up(run: Any, model: Path, tmp_path: Path) -> None:
    said = swapped(model)
    words = [word for cluster, label in said.items() for word in ("--answer", f"{cluster}={label}")]
    code, _, _ = run("name", model, *words, "--out", tmp_path / "a.lw")
    assert code == 0
    made = load(tmp_path / "a.lw")
    told = {one.cluster: one for one in named_clusters(made)}
    for cluster, label in said.items():
        assert (told[cluster].label, told[cluster].certainty, told[cluster].answered) == (label, 1.0, True)
    third = told[2].label
    (tmp_path / "answers.csv").write_text(f"cluster,label\n2,{third}\n")
    code, out, _ = run("name", tmp_path / "a.lw", "--answer", tmp_path / "answers.csv", "--json")
    assert code == 0
    assert json.loads(out)["answers"] == {**{str(cluster): label for cluster, label in said.items()}, "2": third}


def test_what_is_known_follows_the_name(model: Path) -> None:
    """An answer exchanges columns of probabilities and moves figures; temperature and outlier rule stay."""
    before, images = load(model), px(world().split("test"))
    names = head_of(before).names.tolist()
    said = {cluster: "abcde"[label] for cluster, label in enumerate(names)} | swapped(model)
    after = name_clusters(before, said)
    column = torch.arange(5)
    column[[names[0], names[1]]] = torch.tensor([names[1], names[0]])
    one, two = (each.scores(images).probabilities for each in (before, after))
    torch.testing.assert_close(two, one[:, column])
    assert (after.calibration.temperature, after.familiarity.rule) == (
        before.calibration.temperature,
        before.familiarity.rule,
    )
    told, old = after.origin.summary["naming"], before.origin.summary["naming"]
    assert list(told["sizes"]) == [old["sizes"][i] for i in column.tolist()]
    said_before = overlap_agreement(head_of(before).overlaps, head_of(before).own_names)
    assert said_before.tolist() == pytest.approx(old["agreement"], abs=1e-4)
    assert list(told["certainty"]) == [1.0] * 5
    assert list(told["shares"]) == list(old["shares"])
    back = name_clusters(after, {cluster: "abcde"[label] for cluster, label in enumerate(names)})
    for key in ("sizes", "agreement", "near", "far"):
        assert back.origin.summary["naming"][key] == pytest.approx(old[key])


def worth_most(classifier: Classifier) -> tuple[int, str]:
    """The cluster whose answer is worth most, of equal ones the least certain, and its name."""
    worth = settled_names(classifier).worth
    best = max(named_clusters(classifier), key=lambda one: worth[one.cluster])
    return best.cluster, best.label


def test_a_person_is_asked(run: Any, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, _ = worth_most(load(model))
    second, label = worth_most(name_clusters(load(model), {first: "okapi"}))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"okapi\n{label}\n?\n"))
    code, out, err = run("name", model, "--ask", 2, "--out", tmp_path / "a.lw", "--json")
    told = json.loads(out)
    assert code == 0
    assert '"okapi" is a new name; it becomes a label' in " ".join(err.split())
    assert told["answers"] == {str(first): "okapi", str(second): label}
    assert load(tmp_path / "a.lw").origin.summary["answers"] == told["answers"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    code, out, _ = run("name", model, "--ask", 3, "--out", tmp_path / "b.lw", "--json")
    assert (code, json.loads(out)["answers"]) == (0, {})
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n" * 20))
    code, out, _ = run("name", model, "--ask", 20, "--out", tmp_path / "c.lw", "--json")
    assert len(json.loads(out)["answers"]) == 4, "the last cluster is what is left"
    assert {one["certainty"] for one in json.loads(out)["clusters"]} == {1.0}


def test_any_name_will_do_and_several_clusters_may_share_one(run: Any, model: Path, tmp_path: Path) -> None:
    """A label of two clusters has the score of the better one; a name of one's own needs no words."""
    before, images = load(model), px(world().split("test"))
    words = ("--answer", "0=okapi", "--answer", "1=Two words", "--answer", "2=two words")
    code, out, _ = run("name", model, *words, "--out", tmp_path / "own.lw", "--json")
    assert code == 0
    after = load(tmp_path / "own.lw")
    others = {one["label"] for one in json.loads(out)["clusters"] if one["cluster"] > 2}
    assert set(after.labels.names) == {"okapi", "Two words", *others}
    clusters = head_of(before).cluster_scores(before.scores(images).embeddings)
    raw = after.scores(images).raw
    wanted = {"okapi": clusters[:, 0], "Two words": clusters[:, 1:3].max(1)}
    for name, scores in wanted.items():
        np.testing.assert_allclose(raw[:, after.labels.index(name)], scores, rtol=1e-5, atol=1e-5)
    taught = lw.teach(after, "more", examples=images[:5])
    np.testing.assert_allclose(taught.scores(images).raw[:, :4], raw, rtol=1e-6)


def test_a_report_stands_alone(run: Any, picture_model: Path, pictures: Path, tmp_path: Path) -> None:
    place = tmp_path / "report"
    code, out, _ = run("name", picture_model, pictures, "--report", place, "--json")
    assert code == 0
    clusters = json.loads(out)["clusters"]
    for one in clusters:
        with Image.open(one["sheet"]) as sheet:
            assert sheet.width > 300
        assert Path(one["sheet"]).parent == place
    page = (place / "index.html").read_text()
    assert page.count("<section") == len(clusters) == 4
    assert (
        page.count('src="data:image/png;base64,')
        == page.count("<img")
        == sum(len(one["examples"]) + len(one["drawn"]) for one in clusters)
    )
    for absent in ("<script", "http:", "https:", "<b>"):
        assert absent not in page
    assert "Nothing on this page was checked against a label" in page
    code, _, err = run("name", picture_model, pictures, "--report", place)
    assert code == 2
    assert "--overwrite" in err
    assert run("name", picture_model, pictures, "--report", place, "--overwrite")[0] == 0


def test_sheets_lie_where_asked(
    run: Any, picture_model: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("name", picture_model, pictures)[0] == 0
    assert sorted(file.name for file in Path("clusters").iterdir()) == [f"cluster-{i}.png" for i in range(4)]
    assert run("name", picture_model, pictures, "--report", "elsewhere")[0] == 0
    assert len(list(Path("elsewhere").iterdir())) == 5, "and the page"


def test_features_are_listed_in_a_report(run: Any, model: Path, features: Path, tmp_path: Path) -> None:
    code, _, _ = run("name", model, features, "--report", tmp_path)
    assert code == 0
    assert (tmp_path / "index.html").read_text().count("<code>train ") == 5 * 16


def test_examples_of_a_cluster_are_its_own(model: Path) -> None:
    images = px(world().split("train"))
    found = cluster_images(load(model), images, count=3)
    every = [row for one in found for row in one.nearest + one.sample]
    assert len(set(every)) == len(every) == 30
    assert sum(one.count for one in found) == len(images)
    few = cluster_images(load(model), images[:1], count=3)
    assert sorted(one.count for one in few) == [0, 0, 0, 0, 1]


def test_what_stands_out_is_told(model: Path) -> None:
    plain = replace(named_clusters(load(model))[0], certainty=0.9, agreement=0.9, together=0.9, size=0.2, share=0.2)
    assert doubts(plain) == []
    assert doubts(replace(plain, certainty=0.3, agreement=0.1, together=0.5, size=0.4)) == [
        "the name is in doubt",
        "other clusterings divide it differently",
        "most other clusterings give it another name",
        "larger than expected",
    ]
    assert doubts(replace(plain, size=0.1)) == ["smaller than expected"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--answer", "9=a"], 2, "numbered 0 to 4; given 9"),
        (["--answer", "0=a", "--answer", "0=b"], 2, 'two names: "a" and "b"'),
        (["--answer", "ship"], 2, "CLUSTER=LABEL"),
        (["--answer", "one=a"], 2, "the number of a cluster"),
        (["--ask", "2"], 2, "with --out"),
        (["--report", "report"], 2, "Give their data"),
        (["--answer", "absent.csv"], 1, "Cannot read the table of answers"),
    ],
)
def test_wrong_use_is_told(run: Any, model: Path, words: list[str], code: int, message: str) -> None:
    found, _, err = run("name", model, *words)
    assert found == code
    assert message in " ".join(err.split())


def test_what_cannot_be_named_is_told(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    other = tmp_path / "softmax.lw"
    save(lw.fit(world(), Softmax(epochs=1), CPU), other)
    code, _, err = run("name", other)
    assert code == 1
    assert "only method zero_label does" in " ".join(err.split())
    code, _, err = run("name", model, "--answer", "0=a", "--out", other)
    assert code == 2
    assert "--overwrite" in err
    assert load(other).kind == "softmax", "nothing was written"
    (tmp_path / "answers.csv").write_text("number,name\n0,a\n")
    code, _, err = run("name", model, "--answer", tmp_path / "answers.csv")
    assert code == 1
    assert 'needs one column "cluster"' in " ".join(err.split())


def test_without_out_nothing_is_saved(run: Any, model: Path) -> None:
    before = (model / "classifier.json").read_bytes()
    code, out, err = run("name", model, "--answer", f"0={swapped(model)[0]}")
    assert code == 0
    assert " you " in out
    assert "nothing was saved" in " ".join(err.split())
    assert (model / "classifier.json").read_bytes() == before


def test_taught_labels_are_lost_and_it_is_told(run: Any, model: Path, tmp_path: Path) -> None:
    save(load(model).remove("a"), tmp_path / "less.lw")
    code, _, err = run("name", tmp_path / "less.lw", "--answer", "0=a", "--json")
    assert code == 0
    assert "are lost" in " ".join(err.split())


def test_images_of_another_shape_are_refused(model: Path) -> None:
    with pytest.raises(UsageError, match=r"takes features, numbers \[n, 12\]; given \[2, 3\]"):
        cluster_images(load(model), torch.zeros(2, 3))


def test_agreement_is_a_count() -> None:
    """Against counting images one by one, where two clusterings have their own names."""
    first, second = np.array([0, 0, 0, 1, 1, 2]), np.array([2, 2, 1, 0, 0, 1])
    names, inside = np.array([[2, 0, 1], [0, 1, 2]]), np.eye(3)[first]
    overlaps = np.stack([inside.T @ np.eye(3)[each] / inside.sum(0)[:, None] for each in (first, second)])
    called = [names[0][first], names[1][second]]
    wanted = [float((called[1] == label)[called[0] == label].mean()) for label in range(3)]
    assert overlap_agreement(overlaps, names).tolist() == pytest.approx(wanted)
    assert kept_together(overlaps).tolist() == pytest.approx([2 / 3, 1, 1])
    assert kept_together(overlaps[:1]).tolist() == overlap_agreement(overlaps[:1], names[:1]).tolist() == [1, 1, 1]


QUICK = [
    "--method",
    "zero_label",
    "--set",
    "encoder.backbone=convnet",
    "--set",
    "encoder.width=8",
    "--set",
    "encoder.frozen=false",
    "--size",
    8,
]


def test_pictures_and_names_are_enough(run: Any, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("dog\ncat\n\nship\n truck\n")
    words = ["--set", "restarts=2", "--set", "search=10", "--json"]
    code, out, err = run("fit", pictures, *QUICK, *words, "--names", tmp_path / "names.txt", "--out", tmp_path / "a.lw")
    assert code == 0, err
    assert json.loads(out)["labels"] == ["dog", "cat", "ship", "truck"]
    code, out, _ = run("name", tmp_path / "a.lw", pictures, "--report", tmp_path / "sheets", "--json")
    found = json.loads(out)["clusters"]
    assert code == 0
    assert sum(one["images"] for one in found) == len(list(pictures.iterdir()))
    assert all(Path(file).is_file() for one in found for file in one["examples"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--names", "cat"], "Give at least two names"),
        (["--names", "absent.txt"], "Cannot read the names"),
        (["--names", "cat,dog,cat"], "unique"),
        (["--names", "cat,dog", "--splits", "splits.csv"], "no split"),
        (["--names", "cat,dog", "--method", "softmax"], "softmax needs labelled images"),
    ],
)
def test_wrong_names_are_told(run: Any, pictures: Path, tmp_path: Path, words: list[str], message: str) -> None:
    code, _, err = run("fit", pictures, *QUICK, *words, "--out", tmp_path / "a.lw")
    assert code in (1, 2)
    assert message in " ".join(err.split())
    assert not (tmp_path / "a.lw").exists()
