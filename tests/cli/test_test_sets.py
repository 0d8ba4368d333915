"""Which images evaluate, report, attack and analyse measure, as a user with folders and tables meets it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.data import load
from labelwise.evaluation.closed_set import evaluate_closed
from labelwise.evaluation.evaluation import Evaluation
from labelwise.evaluation.outliers import evaluate_outliers
from labelwise.methods import Multilabel
from labelwise_papers.attacks.pgd import Fgsm, Pgd
from tests.cli.folders import write_tall
from tests.conftest import blobs, quick, squares
from tests.pixels_of import px

VERBS: Mapping[str, tuple[object, ...]] = {
    "evaluate": (),
    "report": (),
    "attack": ("--queries", 2),
    "analyse": ("--what", "answers"),
}
SIZES = (8, 24, 12)  # the first is the smallest: what is read for it says too little to the others


@pytest.fixture(autouse=True)
def _short_timings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("labelwise_papers.attacks.attack.GRADIENTS", (Fgsm(), Pgd(steps=2)))
    monkeypatch.chdir(tmp_path)  # where the page goes


def write(root: Path, seed: int, per_label: int, side: int = 8) -> Path:
    """Class folders of pictures, without a split."""
    data = blobs(per_label=per_label, side=side, seed=seed)
    row = 0
    for part in data.splits.values():
        for image, target in zip(px(part), part.targets.tolist(), strict=True):
            (root / f"blob {target}").mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(root / f"blob {target}" / f"{row}.png")
            row += 1
    return root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures that a classifier was fitted on, and others, in every form that people have them in."""
    place = tmp_path_factory.mktemp("with spaces")
    write(place / "my birds", 0, 20)
    write(place / "other birds", 1, 9)
    write(place / "late" / "test", 1, 9)
    files = sorted((place / "other birds").rglob("*.png"))
    rows = [f"{file.relative_to(place)},{file.parent.name}" for file in files]
    (place / "plain.csv").write_text("\n".join(["path,label", *rows]))
    (place / "late.csv").write_text("\n".join(["path,label,split", *(f"{row},test" for row in rows)]))
    data = lw.data.folder(place / "my birds", size=8)
    lw.save(lw.fit(data, quick("softmax", 4), lw.Run(device="cpu")), place / "m.lw")
    return place


def measured(run: Any, verb: str, *words: object) -> tuple[str, Any]:
    """Return the first line that a verb prints, and the document that it prints instead."""
    code, out, err = run(verb, *words, *VERBS[verb])
    assert code == 0, err
    code, document, err = run(verb, *words, *VERBS[verb], "--json")
    assert code == 0, err
    return out.splitlines()[0], json.loads(document)


@pytest.mark.parametrize(
    ("verb", "data", "part"),
    [
        ("evaluate", "late", "late, test split"),
        ("evaluate", "late.csv", "late, test split"),
        ("evaluate", "other birds", "other birds, without splits"),
        ("evaluate", "plain.csv", "plain, without splits"),
        ("report", "late.csv", "late, test split"),
        ("attack", "other birds", "other birds, without splits"),
        ("analyse", "plain.csv", "plain, without splits"),
    ],
)
def test_data_to_test_on_are_measured_whole(run: Any, root: Path, verb: str, data: str, part: str) -> None:
    line, found = measured(run, verb, root / "m.lw", root / data)
    assert line == f"36 images of {part}; left out: none."
    assert found["measured"]["words"] == line
    assert found["measured"]["images"] == found["images"] == 36


@pytest.mark.parametrize("verb", VERBS)
def test_images_of_training_are_told_and_left_out(run: Any, root: Path, verb: str) -> None:
    line, found = measured(run, verb, root / "m.lw", root / "my birds")
    assert line == "16 images of my birds, without splits; left out: 64 used to train or calibrate."
    assert found["measured"]["left_out"] == {"trained_on": 64, "unlabelled": 0, "undrawn": 0}
    assert (found["split"], found["leaked"]) == ("all", 0)


def test_figures_are_those_of_the_images_that_fit_held_out(run: Any, root: Path) -> None:
    data = lw.data.folder(root / "my birds", size=8)
    held = evaluate_closed(Evaluation.of(lw.load(root / "m.lw"), data.split("test"), data.labels))
    _, found = measured(run, "evaluate", root / "m.lw", root / "my birds")
    for key in ("images", "accuracy", "ece", "answer_ece", "kept", "leaked"):
        assert found[key] == pytest.approx(getattr(held, key)), key


@pytest.mark.parametrize("verb", VERBS)
def test_a_split_is_chosen_by_name(run: Any, root: Path, verb: str) -> None:
    for split, images, leaked in (("train", 56, 56), ("val", 8, 8), ("test", 16, 0), ("all", 80, 64)):
        code, out, err = run(verb, root / "m.lw", root / "my birds", *VERBS[verb], "--split", split, "--json")
        assert code == 0, err
        found = json.loads(out)["measured"]
        assert (found["images"], found["leaked"], found["split"]) == (images, leaked, split)
        assert ("used to train or calibrate" in err) == (leaked > 0)
    code, out, err = run(verb, root / "m.lw", root / "late", *VERBS[verb], "--split", "val")
    assert (code, out) == (1, "")
    assert '"late" has no val split; it has: test.' in " ".join(err.split())


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_left_says_what_to_do(run: Any, root: Path, tmp_path: Path, verb: str) -> None:
    rows = ["path,label,split"]
    for file in lw.data.folder(root / "my birds", size=8).split("train").files:
        rows.append(f"{Path(file).relative_to(root)},{Path(file).parent.name},test")
    table = root / f"used {verb}.csv"
    table.write_text("\n".join(rows))
    code, out, err = run(verb, root / "m.lw", table, *VERBS[verb])
    assert (code, out) == (1, "")
    said = " ".join(err.split())
    assert "no image is left to measure: 56 were used to train or calibrate. Give other images, or" in said
    assert "labelwise evaluate MODEL DATA --folds 5. To measure them anyway" in said
    assert "--split all" in said
    assert list(tmp_path.iterdir()) == []


def test_what_a_classifier_was_trained_on_is_measured_by_folds_as_the_error_says(run: Any, root: Path) -> None:
    code, out, err = run("evaluate", root / "m.lw", root / "my birds", "--folds", 5, "--device", "cpu", "--json")
    assert code == 0, err
    assert json.loads(out)["images"] == 80, "each image once, those that were trained on, too"


def test_all_other_pictures_are_told_from_known_ones(run: Any, root: Path) -> None:
    data, classifier = lw.data.folder(root / "my birds", size=8), lw.load(root / "m.lw")
    others = load(root / "other birds", size=8)
    strange = torch.cat([px(part) for part in others.splits.values()])
    wanted = evaluate_outliers(classifier.scores(px(data.split("test"))), classifier.scores(strange))
    words = (root / "m.lw", root / "my birds", "--unknown", root / "other birds")
    for verb in ("evaluate", "report"):
        _, out, _ = run(verb, *words)
        assert out.splitlines()[1] == "As unknown: 36 images of other birds, without splits; left out: none."
        found = json.loads(run(verb, *words, "--json")[1])
        assert found["measured_unknown"]["images"] == 36
        auroc = found["unknown_auroc"] if verb == "evaluate" else found["unknown"]["figures"]["auroc"]
        assert auroc == pytest.approx(wanted.auroc)


def test_a_folder_of_pictures_alone_is_unknown_to_evaluate_as_to_report(run: Any, root: Path, tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / "strange").mkdir(exist_ok=True)
        Image.fromarray(np.full((9, 9, 3), 80 * i, np.uint8)).save(tmp_path / "strange" / f"{i}.png")
    code, out, _ = run("evaluate", root / "m.lw", root / "my birds", "--unknown", tmp_path / "strange", "--json")
    assert code == 0
    assert json.loads(out)["measured_unknown"]["images"] == 3


def test_drawn_pictures_are_counted(run: Any, root: Path) -> None:
    words = (root / "m.lw", root / "other birds", "--device", "cpu")
    _, out, _ = run("attack", *words, "--images", 10, "--queries", 2)
    assert out.startswith("10 images of other birds, without splits; left out: 26 not drawn.\n")
    _, out, _ = run("analyse", *words, "--what", "answers", "--limit", 12)
    assert out.startswith("12 images of other birds, without splits; left out: 24 not drawn.\n")


def test_analyses_that_need_training_images(run: Any, root: Path) -> None:
    found = json.loads(run("analyse", root / "m.lw", root / "my birds", "--what", "probe", "--json")[1])
    assert (found["train_images"], found["test_images"], found["split"]) == (56, 16, "test")
    found = json.loads(run("analyse", root / "m.lw", root / "late", "--what", "saliency", "--json")[1])
    assert (found["images"], found["split"]) == (36, "all")
    code, _, err = run("analyse", root / "m.lw", root / "late", "--what", "joint")
    assert code == 1
    assert 'with training images, and "late" has none of these; it has: test' in " ".join(err.split())


def test_unreadable_files_are_counted(run: Any, root: Path, tmp_path: Path) -> None:
    write(tmp_path / "some", 2, 9)
    (tmp_path / "some" / "blob 0" / "broken.png").write_text("no picture")
    line, found = measured(run, "evaluate", root / "m.lw", tmp_path / "some")
    assert line.startswith("36 images of some, without splits; left out: none. 1 file skipped (")
    assert "broken.png" in found["measured"]["skipped"][0]["file"]


def test_features_of_which_several_labels_may_be_true(run: Any, tmp_path: Path) -> None:
    data, head = squares(90), "f0,f1,f2,labels,split"
    rows = [
        ",".join(f"{value:.4f}" for value in mean) + f",{words},{name}"
        for name, part in data.splits.items()
        for mean, words in zip(px(part).float().mean((2, 3)).tolist(), part.words(data.labels.names), strict=True)
    ]
    (tmp_path / "all.csv").write_text("\n".join([head, *rows]))
    (tmp_path / "late.csv").write_text("\n".join([head, *(row for row in rows if row.endswith(",test"))]))
    made = lw.fit(load(tmp_path / "all.csv"), Multilabel(epochs=1), lw.Run(device="cpu"))
    lw.save(made, tmp_path / "m.lw")
    both = [measured(run, "evaluate", tmp_path / "m.lw", tmp_path / name)[1] for name in ("all.csv", "late.csv")]
    assert both[0]["mean_average_precision"] == both[1]["mean_average_precision"]
    assert [one["measured"]["images"] for one in both] == [30, 30]


def test_pictures_of_a_pack_that_are_not_square_keep_their_shape(run: Any, tmp_path: Path) -> None:
    tall = write_tall(tmp_path / "tall.npz")
    lw.save(lw.fit(tall, quick("softmax", 3), lw.Run(device="cpu")), tmp_path / "m.lw")
    held = evaluate_closed(Evaluation.of(lw.load(tmp_path / "m.lw"), tall.split("test"), tall.labels))
    _, found = measured(run, "evaluate", tmp_path / "m.lw", tmp_path / "tall.npz")
    assert (found["images"], found["ece"]) == (16, pytest.approx(held.ece))


def test_every_column_of_a_comparison_is_what_evaluate_says_of_that_model(run: Any, tmp_path: Path) -> None:
    """Models of three sizes: each reads the pictures, and those of nothing known, at its own."""
    data, strange = write(tmp_path / "large", 3, 20, side=30), write(tmp_path / "strange", 4, 9, side=30)
    for size in SIZES:
        made = lw.fit(lw.data.folder(data, size=size), quick("softmax", 5), lw.Run(device="cpu"))
        lw.save(made, tmp_path / f"{size}.lw")
    models = [tmp_path / f"{size}.lw" for size in SIZES]
    words = ("--unknown", strange, "--json")
    alone = [json.loads(run("evaluate", model, data, *words)[1]) for model in models]
    compared = (word for model in models[1:] for word in ("--compare", model))
    code, out, err = run("report", models[0], data, *compared, *words)
    assert code == 0, err
    page = json.loads(out)
    for own, column in zip(alone, [page, *page["compare"]], strict=True):
        for key in ("images", "accuracy", "balanced_accuracy", "ece", "answer_ece", "kept", "kept_accuracy", "leaked"):
            assert column["closed"][key] == pytest.approx(own[key], abs=1e-6), (own["model"], key)
        for key in ("auroc", "fpr95", "flagged"):
            assert column["unknown"]["figures"][key] == pytest.approx(own[f"unknown_{key}"], abs=1e-6)
