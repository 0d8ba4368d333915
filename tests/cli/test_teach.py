"""The verbs teach and forget."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from tests.conftest import quick


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photos of three labels: noise around a colour each."""
    root, draw = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    for label, colour in (("owl", (200, 60, 60)), ("wren", (60, 200, 60)), ("tit", (60, 60, 200))):
        (root / label).mkdir()
        for i in range(12):
            pixels = np.clip(draw.normal(colour, 50, (48, 48, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / label / f"{label} {i:02}.png")
    return root


def test_teach_classify_forget(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    taught, left = tmp_path / "taught.lw", tmp_path / "left.lw"
    examples = sorted((pictures / "val" / "blob 0").iterdir())
    code, out, _ = run("teach", model, "a new blob", *examples, "--out", taught)
    assert code == 0
    assert f"learned from {len(examples)} images" in " ".join(out.split())
    found = json.loads(run("classify", taught, pictures / "test" / "blob 0", "--json", "--top", 5)[1])
    assert "a new blob" in [entry["label"] for entry in found["predictions"][0]["top"]]
    assert run("forget", taught, "a new blob", "--out", left)[0] == 0
    code, _, err = run("teach", model, "x", tmp_path / "nowhere", "--out", tmp_path / "y")
    assert code == 1
    assert "no such file" in err.lower()
    assert not (tmp_path / "y").exists()


def test_more_examples_of_a_known_label(run: Any, photos: Path, tmp_path: Path) -> None:
    """Whatever the case of its name: three and then three are as six at once, and a near miss is a new label with a hint."""
    files = sorted((photos / "owl").iterdir())
    first, more, once = tmp_path / "first.lw", tmp_path / "more.lw", tmp_path / "once.lw"
    base = tmp_path / "base.lw"
    lw.save(lw.fit(lw.data.folder(photos)).remove("owl"), base)
    assert run("teach", base, "owl", *files[:3], "--out", first)[0] == 0
    code, out, _ = run("teach", first, "OWL", *files[3:6], "--out", more)
    assert code == 0
    assert '"owl", a known label, learned from 3 images more' in " ".join(out.split())
    assert 'of 3 examples were classified as "owl" before' in " ".join(out.split())
    assert run("teach", base, "owl", *files[:6], "--out", once)[0] == 0
    grown, whole = lw.load(more), lw.load(once)
    assert grown.labels.names == whole.labels.names
    np.testing.assert_allclose(grown.label_embeddings, whole.label_embeddings, atol=1e-4)
    code, out, err = run("teach", more, "owls", *files[:3], "--out", tmp_path / "owls.lw")
    assert code == 0
    assert '"owls" is a new label. Did you mean "owl"?' in err


def test_more_examples_of_a_label_that_was_fitted_change_no_other_score(run: Any, photos: Path, tmp_path: Path) -> None:
    files = sorted((photos / "owl").iterdir())
    classifier = lw.fit(photos)
    lw.save(classifier, tmp_path / "m.lw")
    assert run("teach", tmp_path / "m.lw", "Owl", *files[:4], "--out", tmp_path / "n.lw")[0] == 0
    grown, place = lw.load(tmp_path / "n.lw"), classifier.labels.index("owl")
    before, after = (each.scores([str(file) for file in files]).raw for each in (classifier, grown))
    np.testing.assert_array_equal(np.delete(before, place, 1), np.delete(after, place, 1))
    assert np.abs(before[:, place] - after[:, place]).max() > 0
    assert classifier.examples is not None
    assert grown.examples is not None
    assert grown.examples.counts.sum() == classifier.examples.counts.sum() + 4


def test_a_trained_label_whose_examples_are_not_kept_says_what_to_do(
    run: Any, model: Path, pictures: Path, tmp_path: Path
) -> None:
    examples = sorted((pictures / "val" / "blob 0").iterdir())
    code, _, err = run("teach", model, "Blob 0", *examples, "--out", tmp_path / "m.lw")
    assert code == 1
    assert 'did not store the examples of "blob 0"' in " ".join(err.split())
    code, _, err = run("teach", model, "blob 0", "--text", "round", "--out", tmp_path / "m.lw")
    assert code == 2
    assert 'The label "blob 0" already exists. Give examples only' in " ".join(err.split())


def test_names_are_matched_without_regard_to_case(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    image = next((pictures / "test" / "blob 0").iterdir())
    assert json.loads(run("ask", model, image, "BLOB 1", "--json")[1])["label"] == "blob 1"
    assert run("classify", model, image, "--only", "Blob 0,UNKNOWN")[0] == 0
    assert run("forget", model, "Blob 2", "--out", tmp_path / "f.lw")[0] == 0
    assert "blob 2" not in lw.load(tmp_path / "f.lw").labels.names
    code, _, err = run("forget", model, "blub 2", "--out", tmp_path / "g.lw")
    assert code == 2
    assert 'Did you mean "blob 2"?' in err


def test_merge_makes_one_classifier_of_several(run: Any, pictures: Path, tmp_path: Path) -> None:
    for name, labels in {"a": (0, 1, 2), "b": (2, 3)}.items():
        for label in labels:
            shutil.copytree(pictures / "train" / f"blob {label}", tmp_path / name / f"blob {label}")
        fitted = lw.fit(lw.data.load(tmp_path / name, size=8), quick("discriminant"), lw.Run(device="cpu"))
        lw.save(fitted, tmp_path / f"{name}.lw")
    both = tmp_path / "both of them.lw"
    code, out, err = run("merge", tmp_path / "a.lw", tmp_path / "b.lw", "--out", both, "--json")
    assert code == 0, err
    assert json.loads(out)["labels"] == ["blob 0", "blob 1", "blob 2", "blob 3"]
    code, out, _ = run("classify", both, pictures / "test" / "blob 3", "--json")
    assert code == 0
    answers = [one["label"] for one in json.loads(out)["predictions"]]
    assert answers.count("blob 3") > len(answers) / 2
    code, _, err = run("merge", tmp_path / "a.lw", "--out", tmp_path / "c.lw")
    assert code == 2
    assert "at least two" in err
    assert not (tmp_path / "c.lw").exists()
