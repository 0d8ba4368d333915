"""Boxes of a detector in the shell: a row for each box, and joined rows for each image and event."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.core.scores import UNKNOWN
from labelwise.images.formats.annotations import Record
from labelwise.jobs.job import Job
from labelwise.tasks.box_answers import Joined, decider, join
from tests.core.test_coarser import draw, fitted
from tests.images.decode.videos import write_video

SIDE = 8


@pytest.fixture
def detections(model: Path, pictures: Path, tmp_path: Path) -> Path:
    """Two pictures side by side in each photo, and the file of a detector that found them."""
    classifier = lw.load(model)
    images: list[dict[str, Any]] = []
    pairs = {"one.png": (1, 1), "two.png": (1, 2), "none.png": (), "faint.png": (3,), "people.png": ()}
    for name, labels in pairs.items():
        photo = Image.new("RGB", (2 * SIDE, SIDE), "gray")
        for place, label in enumerate(labels):
            files = sorted((pictures / "test" / f"blob {label}").iterdir())
            answers = zip(files, classifier.classify(files), strict=True)
            clear = [file for file, one in answers if one.label == f"blob {label}"]
            photo.paste(Image.open(clear[place]), (SIDE * place, 0))
        photo.save(tmp_path / name)
        conf = 0.1 if name == "faint.png" else 0.9
        boxes = [{"category": "1", "conf": conf, "bbox": [place / 2, 0, 0.5, 1]} for place in range(len(labels))]
        images.append({"file": name, "seq_id": "night" if name[0] in "on" else "", "detections": boxes})
    images[-1]["detections"] = [{"category": "2", "conf": 0.8, "bbox": [0, 0, 0.2, 0.9]}]
    images.append({"file": "broken.png", "failure": "Failure image access", "detections": None})
    document = {"images": images, "detection_categories": {"1": "animal", "2": "person"}}
    (tmp_path / "a detector.json").write_text(json.dumps(document))
    return tmp_path / "a detector.json"


def test_boxes_are_classified_and_joined(run: Any, model: Path, detections: Path, tmp_path: Path) -> None:
    code, out, err = run("classify", model, detections, "--json", "--csv", tmp_path / "answers.csv")
    assert code == 0, err
    document = json.loads(out)
    assert [one["label"] for one in document["predictions"]] == ["blob 1", "blob 1", "blob 1", "blob 2"]
    joined = {(one["level"], Path(one["name"]).name): one for one in document["joined"]}
    assert {key: one["label"] for key, one in joined.items() if "two.png" not in key} == {
        ("image", "one.png"): "blob 1",
        ("image", "none.png"): "empty",
        ("image", "faint.png"): "empty",
        ("image", "people.png"): "person",
        ("event", "night"): "blob 1",
    }
    assert joined["image", "two.png"]["counts"] == [["blob 1", 1], ["blob 2", 1]]
    with (tmp_path / "answers.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["level"] for row in rows] == ["box"] * 4 + ["image"] * 5 + ["event"]
    assert {row["file"].partition("#")[2] for row in rows[:4]} == {
        "xywh=percent:0,0,50,100",
        "xywh=percent:50,0,50,100",
    }


def test_the_least_confidence_and_events_are_options(run: Any, model: Path, detections: Path, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("file,event\none.png,a\ntwo.png,a\nfaint.png,b\n")
    code, out, err = run(
        "classify", model, detections, "--min-detection", 0.05, "--events", tmp_path / "events.csv", "--json"
    )
    assert code == 0, err
    document = json.loads(out)
    assert len(document["predictions"]) == 5
    events = {one["name"]: one["label"] for one in document["joined"] if one["level"] == "event"}
    assert events == {"a": "blob 1", "b": "blob 3", "night": "empty"}


def test_photos_are_sorted_by_their_joined_answer(run: Any, model: Path, detections: Path, tmp_path: Path) -> None:
    (detections.parent / "two.png").unlink()
    code, _, err = run("classify", model, detections, "--sort-into", tmp_path / "sorted", "--strict")
    assert code == 1, "boxes of a missing photo are an error if all must be read"
    document = json.loads(detections.read_text())
    document["images"] = [one for one in document["images"] if one["file"] not in ("two.png", "broken.png")]
    detections.write_text(json.dumps(document))
    code, out, err = run("classify", model, detections, "--sort-into", tmp_path / "sorted")
    assert code == 0, err
    assert "person" in out
    places = sorted(str(file.relative_to(tmp_path / "sorted")) for file in (tmp_path / "sorted").glob("*/*.png"))
    assert places == ["blob 1/one.png", "empty/faint.png", "empty/none.png", "person/people.png"]


def test_photos_without_boxes_are_empty(run: Any, model: Path, tmp_path: Path) -> None:
    (tmp_path / "md.json").write_text('{"images": [{"file": "a.png", "detections": []}], "detection_categories": {}}')
    code, out, err = run("classify", model, tmp_path / "md.json", "--json")
    assert code == 0, err
    assert json.loads(out)["predictions"] == []
    assert json.loads(out)["joined"][0]["label"] == "empty"


def test_the_same_in_python(model: Path, detections: Path) -> None:
    boxes = lw.data.boxes(detections, least=0.05)
    answers = lw.load(model).classify(boxes.images)
    assert [one.label for one in answers] == ["blob 1", "blob 1", "blob 1", "blob 2", "blob 3"]
    assert len(lw.load(model).classify(detections)) == 4


def answer(label: str, *values: float) -> tuple[str, Any]:
    return label, np.array(values)


def best(mean: Any) -> tuple[str, float]:
    return "ab"[int(mean.argmax())], float(mean.max())


def test_joined_answers_are_weighted_means_of_known_boxes() -> None:
    box = (0.0, 0.0, 50.0, 50.0, True)
    records = {
        f"x.png#xywh=percent:{i},0,50,50": Record(file="x.png", box=box, confidence=w)
        for i, w in enumerate((0.9, 0.3, 0.9))
    }
    answers = dict(zip(records, (answer("a", 0.6, 0.4), answer("b", 0.1, 0.9), answer("a", 0.8, 0.2)), strict=True))
    (one,) = join(records, answers, best)
    mean = (0.9 * 0.6 + 0.3 * 0.1 + 0.9 * 0.8) / 2.1
    assert one.probability == pytest.approx(mean)
    expected = Joined(level="image", name="x.png", label="a", probability=None, boxes=3, counts=(("a", 2), ("b", 1)))
    assert replace(one, probability=None) == expected
    single = dict(list(records.items())[:1])
    (one,) = join(single, answers, best)
    assert (one.label, one.probability) == ("a", 0.6), "one box: its own answer"
    answers = dict(
        zip(records, (answer(UNKNOWN, 0.6, 0.4), answer("b", 0.1, 0.9), answer(UNKNOWN, 0.8, 0.2)), strict=True)
    )
    (one,) = join(records, answers, best)
    assert one.label == UNKNOWN
    assert join(records, {}, best) == [], "no box could be read"


def test_a_job_joins_boxes_as_the_table_does(
    run: Any, model: Path, detections: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)  # paths may be relative
    defaults: dict[str, Any] = Job.__init__.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "size", 3)  # boxes of one image are in two blocks
    words = ("classify", model, detections.name, "--max-error", "0.3")
    code, text, err = run(*words, "--json")
    assert code == 0, err
    plain = json.loads(text)
    for _ in range(2):  # and again, from what is done
        code, text, err = run(*words, "--out", "jobs.parquet", "--json")
        assert code == 0, err
    assert json.loads(text)["joined"] == {"image": 5, "event": 1}
    table = [row for file in sorted(Path("jobs.parquet").glob("*.parquet")) for row in read_parquet(file)]
    boxes = {Path(row["file"]).name: row["answer"] for row in table if row["level"] == "box"}
    assert boxes == {Path(one["file"]).name: one["label"] for one in plain["predictions"]}
    joined = {
        (row["level"], Path(row["file"]).name): (row["answer"], row["probability"])
        for row in table
        if row["level"] != "box"
    }
    assert set(joined) == {(one["level"], Path(one["name"]).name) for one in plain["joined"]}
    for one in plain["joined"]:
        label, probability = joined[one["level"], Path(one["name"]).name]
        assert label == one["label"]
        assert probability == pytest.approx(one["probability"], abs=1e-6)


def read_parquet(file: Path) -> list[dict[str, Any]]:
    from pyarrow import parquet

    return parquet.read_table(file).to_pylist()  # type: ignore[no-any-return]


def test_the_joined_answer_of_one_box_is_its_own_also_with_a_promise() -> None:
    classifier = fitted()
    scores = classifier.scores(draw(200, 2)[0])
    own = [path[-1] if path else "unsure" for path, _ in scores.coarser(0.05)]
    assert {word.split()[0] for word in own} == {"label", "pair", "unsure"}
    decide = decider(classifier, 0.05)
    assert [decide(row)[0] for row in scores.probabilities] == own
    names = [classifier.labels.names[best] for best in scores.best]
    assert [decider(classifier)(row)[0] for row in scores.probabilities] == names


def test_a_job_refuses_a_promise_that_cannot_be_made(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    out = tmp_path / "a.parquet"
    code, _, err = run("classify", model, pictures / "test", "--max-error", "1.5", "--out", out)
    assert code == 2
    assert "between 0 and 1" in err
    assert not out.exists()


def test_frames_of_a_video_are_classified_and_joined(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    pytest.importorskip("av")
    files = sorted((pictures / "test" / "blob 1").iterdir())
    clear = [np.asarray(Image.open(file).convert("RGB")) for file in files]
    home = tmp_path / "a camera"
    write_video(home / "night.mkv", [clear[0], clear[0], clear[1], clear[1], clear[2], clear[2]])
    (home / "photo.png").write_bytes(files[0].read_bytes())
    words = [one.label for one in lw.load(model).classify(files[:3])]
    code, out, err = run("classify", model, home, "--json", "--csv", tmp_path / "a.csv", "--sort-into", tmp_path / "to")
    assert code == 0, err
    document = json.loads(out)
    assert [(Path(one["file"]).name, one["label"]) for one in document["predictions"]] == [
        *((f"night.mkv#t={second}", word) for second, word in enumerate(words)),
        ("photo.png", words[0]),
    ]
    (video,) = document["joined"]
    assert (video["level"], Path(video["name"]).name, video["boxes"]) == ("video", "night.mkv", 0)
    assert sum(count for _, count in video["counts"]) == 3
    with (tmp_path / "a.csv").open(newline="") as stream:
        assert [row["level"] for row in csv.DictReader(stream)] == ["frame"] * 3 + ["image", "video"]
    assert sorted(file.name for file in (tmp_path / "to").glob("*/*.*")) == ["night.mkv", "photo.png"]
    code, out, err = run("classify", model, home / "night.mkv", "--frame-rate", 2, "--json")
    assert (code, len(json.loads(out)["predictions"])) == (0, 6), err
    code, out, err = run("classify", model, home / "night.mkv")
    assert (code, out.count("night.mkv")) == (0, 1), err
    code, _, err = run("classify", model, home, "--format", "camtrap-dp", "--out", tmp_path / "package")
    assert code == 0, err
    with (tmp_path / "package" / "observations.csv").open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 2
    with (tmp_path / "package" / "media.csv").open(newline="") as stream:
        assert {row["fileName"]: row["fileMediatype"] for row in csv.DictReader(stream)} == {
            "night.mkv": "video/x-matroska",
            "photo.png": "image/png",
        }


def test_boxes_in_frames_of_a_video(run: Any, model: Path, pictures: Path, tmp_path: Path) -> None:
    """As MegaDetector writes them: the number of the frame for each box, and frames for each second."""
    pytest.importorskip("av")
    clear = np.asarray(Image.open(sorted((pictures / "test" / "blob 1").iterdir())[0]).convert("RGB"))
    wide = np.concatenate([clear, np.full_like(clear, 99)], 1)
    write_video(tmp_path / "v.mkv", [np.full_like(wide, 99)] * 3 + [wide])
    seen = {"category": "1", "conf": 0.9, "bbox": [0, 0, 0.5, 1], "frame_number": 3}
    document = {
        "images": [{"file": "v.mkv", "frame_rate": 2.0, "detections": [seen]}],
        "detection_categories": {"1": "animal"},
    }
    (tmp_path / "md.json").write_text(json.dumps(document))
    code, out, err = run("classify", model, tmp_path / "md.json", "--json")
    assert code == 0, err
    (one,) = json.loads(out)["predictions"]
    assert one["file"] == f"{tmp_path / 'v.mkv'}#t=1.5&xywh=percent:0,0,50,100"
    assert one["label"] == lw.load(model).classify(Image.fromarray(clear))[0].label
    assert [each["level"] for each in json.loads(out)["joined"]] == ["video"]
