"""Answers in tables of camera traps: packages read back equal, ids of a package stay, and Timelapse finds each image."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import labelwise as lw
from labelwise.images.formats.boxes import boxes
from labelwise.images.formats.camtrap_out import DEPLOYMENTS, MEDIA, OBSERVATIONS
from tests.cli.test_boxes import detections as detections
from tests.images.formats.written import write_csv


@pytest.fixture
def photos(pictures: Path, tmp_path: Path) -> Path:
    """Photos of two cameras; one says when it was taken."""
    folder = tmp_path / "all photos"
    for camera, label in (("camera A", 1), ("camera B", 2)):
        (folder / camera).mkdir(parents=True)
        for file in sorted((pictures / "test" / f"blob {label}").iterdir())[:3]:
            shutil.copy(file, folder / camera / file.name)
    exif = Image.Exif()
    exif[0x8769] = {0x9003: "2026:05:01 10:20:30"}
    image = next(iter((folder / "camera A").iterdir()))
    Image.open(image).save(folder / "camera A" / "timed.png", exif=exif)
    return folder


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_a_package_of_photos_is_read_back_equal(run: Any, model: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "a package"
    code, text, err = run("classify", model, photos, "--format", "camtrap-dp", "--out", out, "--json")
    assert code == 0, err
    assert "latitude" in err
    answers = {Path(one["file"]).name: one for one in json.loads(text)["predictions"]}
    known = {name: one["label"] for name, one in answers.items() if one["label"] != "unknown"}
    back = lw.data.load(out, root=photos)
    files = [Path(file).name for part in back.splits.values() for file in part.files]
    labels = [back.labels.names[target] for part in back.splits.values() for target in part.targets]
    assert dict(zip(files, labels, strict=True)) == known
    tables = {name: rows(out / f"{name}.csv") for name in ("deployments", "media", "observations")}
    for name, columns in (("deployments", DEPLOYMENTS), ("media", MEDIA), ("observations", OBSERVATIONS)):
        assert tuple(tables[name][0]) == columns
    assert {row["deploymentID"] for row in tables["deployments"]} == {"camera A", "camera B"}
    assert {row["filePath"] for row in tables["media"]} == {
        f"{file.parent.name}/{file.name}" for file in photos.glob("*/*")
    }
    timed = next(row for row in tables["media"] if row["fileName"] == "timed.png")
    assert (timed["timestamp"], timed["mediaComments"]) == ("2026-05-01T10:20:30Z", "")
    assert all(row["mediaComments"] for row in tables["media"] if row is not timed)
    by_media = {row["mediaID"]: row["fileName"] for row in tables["media"]}
    for row in tables["observations"]:
        one = answers[by_media[row["mediaID"]]]
        assert row["classificationMethod"] == "machine"
        assert row["classifiedBy"].startswith(f"{model.name}, labelwise ")
        if row["observationType"] == "animal":
            assert row["scientificName"] == one["label"]
            assert float(row["classificationProbability"]) == pytest.approx(one["probability"], abs=1e-4)
        else:
            assert (row["observationType"], row["scientificName"], one["label"]) == ("unknown", "", "unknown")
    description = json.loads((out / "datapackage.json").read_text())
    assert "/1.0.2/" in description["profile"]
    assert [one["scientificName"] for one in description["taxonomic"]] == sorted(set(known.values()))


def test_positions_of_deployments_are_those_of_a_table_next_to_the_photos(
    run: Any, model: Path, photos: Path, tmp_path: Path
) -> None:
    write_csv(
        photos / "deployments.csv", ("deploymentID", "Latitude", "longitude", "mine"), [("camera A", 48.1, 11.5, "x")]
    )
    out = tmp_path / "package"
    code, _, err = run("classify", model, photos, "--format", "camtrap-dp", "--out", out)
    assert code == 0, err
    assert "No position of camera B:" in " ".join(err.split())
    first, second = rows(out / "deployments.csv")
    assert (first["deploymentID"], first["latitude"], first["longitude"]) == ("camera A", "48.1", "11.5")
    assert (second["latitude"], second["longitude"], tuple(second)) == ("", "", DEPLOYMENTS)
    assert first["deploymentStart"]


def test_boxes_and_events_are_read_back_equal(run: Any, model: Path, detections: Path, tmp_path: Path) -> None:
    out = tmp_path / "package"
    code, text, err = run("classify", model, detections, "--format", "camtrap-dp", "--out", out, "--json")
    assert code == 0, err
    document = json.loads(text)
    back = boxes(out, root=detections.parent).records
    answers = {one["file"]: one["label"] for one in document["predictions"]}
    assert {address: record.labels for address, record in back.items() if record.box and "people" not in address} == {
        address: (label,) for address, label in answers.items()
    }
    assert {record.group for address, record in back.items() if "one.png" in address} == {"night"}
    table = rows(out / "observations.csv")
    kinds = {row["observationType"] for row in table}
    assert kinds >= {"animal", "blank", "human"}
    event = next(row for row in table if row["observationLevel"] == "event")
    assert (event["eventID"], event["scientificName"], event["mediaID"]) == ("night", "blob 1", "")
    assert event["eventStart"] <= event["eventEnd"]


def test_a_package_keeps_its_deployments_media_and_events(run: Any, model: Path, photos: Path, tmp_path: Path) -> None:
    package = tmp_path / "old package"
    shutil.copytree(photos, package / "media")
    files = sorted((package / "media").glob("*/*"))
    day = "2026-05-0{}T10:00:00+02:00"
    media = [
        (f"agouti-{i}", f"d{i % 2}", day.format(1 + i), f"media/{f.parent.name}/{f.name}") for i, f in enumerate(files)
    ]
    write_csv(package / "media.csv", ("mediaID", "deploymentID", "timestamp", "filePath"), media)
    write_csv(
        package / "deployments.csv", ("deploymentID", "latitude", "longitude"), [("d0", 48.1, 11.5), ("d1", 48, 11)]
    )
    seen = [(f"agouti-{i}", "d0", f"night {i // 2}", "unclassified", "") for i in range(len(files))]
    columns = ("mediaID", "deploymentID", "eventID", "observationType", "scientificName")
    write_csv(package / "observations.csv", columns, seen)
    known = {"scientificName": "blob 1", "taxonRank": "species"}
    about = {
        "title": "our cameras",
        "contributors": [{"title": "us"}],
        "taxonomic": [known, {"scientificName": "other"}],
    }
    (package / "datapackage.json").write_text(json.dumps(about))
    out = tmp_path / "new"
    code, _, err = run("classify", model, package, "--format", "camtrap-dp", "--out", out)
    assert code == 0, err
    for name in ("deployments.csv", "media.csv"):
        assert (out / name).read_bytes() == (package / name).read_bytes()
    table = rows(out / "observations.csv")
    images = {row["mediaID"]: row for row in table if row["observationLevel"] == "media"}
    assert set(images) == {row[0] for row in media}
    assert {one: row["eventID"] for one, row in images.items()} == {row[0]: row[2] for row in seen}
    assert {row["eventID"] for row in table if row["observationLevel"] == "event"} == {row[2] for row in seen}
    description = json.loads((out / "datapackage.json").read_text())
    assert (description["title"], description["contributors"]) == ("our cameras", [{"title": "us"}])
    assert known in description["taxonomic"]
    assert "other" not in str(description["taxonomic"])
    code, _, err = run("classify", model, package, "--format", "camtrap-dp", "--out", package, "--overwrite")
    assert code == 2
    assert "Choose another --out" in err
    code, _, err = run("classify", model, package, "--format", "camtrap-dp", "--out", out)
    assert code == 2
    assert "--overwrite" in err
    assert run("classify", model, package, "--format", "camtrap-dp", "--out", out, "--overwrite")[0] == 0
    (package / "deployments.csv").unlink()
    code, _, err = run("classify", model, package, "--format", "camtrap-dp", "--out", tmp_path / "other")
    assert (code, "deployments.csv" in err) == (2, True)


def test_timelapse_finds_each_image_below_the_folder(run: Any, model: Path, photos: Path, tmp_path: Path) -> None:
    out = tmp_path / "import.csv"
    code, text, err = run("classify", model, photos, "--format", "timelapse", "--out", out, "--json")
    assert code == 0, err
    answers = {Path(one["file"]): one for one in json.loads(text)["predictions"]}
    table = rows(out)
    assert list(table[0]) == ["RootFolder", "File", "RelativePath", "Label", "Probability"]
    found = {photos / row["RelativePath"].replace("\\", "/") / row["File"]: row for row in table}
    assert set(found) == set(answers)
    for file, one in answers.items():
        assert found[file]["RootFolder"] == "all photos"
        assert found[file]["Label"] == ("" if one["label"] == "unknown" else one["label"])
        assert bool(found[file]["Probability"]) == bool(found[file]["Label"])


def test_timelapse_gets_one_answer_for_the_boxes_of_an_image(
    run: Any, model: Path, detections: Path, tmp_path: Path
) -> None:
    assert run("classify", model, detections, "--format", "timelapse", "--out", tmp_path / "t.csv")[0] == 0
    labels = {row["File"]: row["Label"] for row in rows(tmp_path / "t.csv")}
    assert labels["one.png"] == "blob 1"
    assert (labels["none.png"], labels["people.png"]) == ("empty", "person")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--format", "camtrap-dp"), "needs --out"),
        (("--format", "timelapse", "--out", "folder"), "writes a .csv file"),
        (("--format", "timelapse", "--out", "t.csv", "--only", "unknown"), "Leave out --only"),
        (("--format", "timelapse", "--out", "t.csv", "--data-root", "/nowhere"), "outside the folder"),
    ],
)
def test_what_cannot_be_written_is_refused(
    run: Any, model: Path, photos: Path, tmp_path: Path, words: tuple[str, ...], message: str, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = run("classify", model, photos, *words)
    assert code in (1, 2)
    assert message in err
    assert not (tmp_path / "t.csv").exists()
