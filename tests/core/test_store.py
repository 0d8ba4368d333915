import json
import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import labelwise as lw
from labelwise.core.load import ABOUT, digest_of
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.files import read_arrays
from tests.changed import description
from tests.conftest import blobs
from tests.contract.subjects import trained
from tests.pixels_of import px


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    lw.save(trained("indicator"), tmp_path / "model.lw")
    return tmp_path / "model.lw"


def test_loaded_classifier_is_the_same(saved: Path) -> None:
    before, after = trained("indicator"), lw.load(saved)
    images = blobs().split("test").images
    np.testing.assert_allclose(after.scores(images).log_odds, before.scores(images).log_odds, rtol=1e-4, atol=1e-4)
    assert after.familiarity.rule == before.familiarity.rule
    assert after.familiarity.memory is not None
    assert after.origin.summary == before.origin.summary
    assert after.origin.method == before.origin.method
    assert after.origin.train_digests is not None
    assert sorted(p.name for p in saved.iterdir()) == [
        "classifier.json",
        "encoder.json",
        "encoder.onnx",
        "training.safetensors",
        "weights.safetensors",
    ]


def test_taught_classifier_is_saved_with_its_label(saved: Path, tmp_path: Path) -> None:
    taught = lw.teach(lw.load(saved), "a new one", examples=px(blobs().split("test"))[:5])
    lw.save(taught, tmp_path / "taught.lw")
    again = lw.load(tmp_path / "taught.lw")
    assert again.labels.names[-1] == "a new one"
    twice = lw.teach(again, "another", examples=px(blobs().split("test"))[5:9])
    images = px(blobs().split("test"))
    np.testing.assert_allclose(twice.scores(images).log_odds[:, :5], taught.scores(images).log_odds)


def test_label_knowledge_is_saved(tmp_path: Path) -> None:
    classifier = trained("softmax")
    labels = lw.Labels(
        names=classifier.labels.names,
        vectors=torch.randn(4, 3),
        texts=(("é",), ("b", "c"), (), ("d",)),
        order=(3, 1, 0, 2),
        shares=torch.full((4,), 0.25),
    )
    lw.save(replace(classifier, labels=labels), tmp_path / "m")
    again = lw.load(tmp_path / "m").labels
    assert (again.names, again.texts, again.order) == (labels.names, labels.texts, labels.order)
    assert again.vectors is not None
    assert labels.vectors is not None
    assert np.array_equal(again.vectors, labels.vectors)


def test_existing_work_is_not_overwritten(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"already holds a classifier.*--overwrite"):
        lw.save(trained("softmax"), saved)
    assert lw.load(saved).kind == "indicator"
    lw.save(trained("softmax"), saved, overwrite=True)
    assert lw.load(saved).kind == "softmax"
    (tmp_path / "photos").mkdir()
    with pytest.raises(UsageError, match="exists and is not a saved classifier"):
        lw.save(trained("softmax"), tmp_path / "photos", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.lw", "photos"]


def test_failure_while_writing_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lw.save(trained("indicator"), tmp_path / "m")

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("labelwise.core.store.write_atomically", broken)
    with pytest.raises(StoreError, match="disk full"):
        lw.save(trained("softmax"), tmp_path / "m", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert lw.load(tmp_path / "m").kind == "indicator"


def test_the_old_one_is_put_back_where_the_new_one_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lw.save(trained("indicator"), tmp_path / "m")
    rename = Path.rename

    def broken(self: Path, target: Path) -> Path:
        if self.name.endswith(".part") and target.name == "m":
            raise OSError("stale file handle")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", broken)
    with pytest.raises(StoreError, match="stale file handle"):
        lw.save(trained("softmax"), tmp_path / "m", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["m"]
    assert lw.load(tmp_path / "m").kind == "indicator"


def damage(path: Path, change: str) -> None:
    about = description(path)
    match change:
        case "missing":
            shutil.rmtree(path)
        case "empty":
            (path / "classifier.json").unlink()
        case "not json":
            (path / "classifier.json").write_text("{")
        case "newer format":
            (path / "classifier.json").write_text(json.dumps({**about, "format": 99}))
        case "no weights":
            (path / "weights.safetensors").unlink()
        case "flipped bit":
            content = bytearray((path / "weights.safetensors").read_bytes())
            content[-1] ^= 1
            (path / "weights.safetensors").write_bytes(content)
        case "cut off":
            os.truncate(path / "weights.safetensors", 100)
        case "other head":
            about["head"]["kind"] = "oracle"
            (path / "classifier.json").write_text(json.dumps(about))
        case "no encoder":
            (path / "encoder.onnx").unlink()
        case "other encoder":
            (path / "encoder.onnx").write_bytes(b"graph")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "No saved classifier at .*model.lw"),
        ("empty", "is not a saved classifier: cannot read classifier.json"),
        ("not json", "classifier.json is damaged"),
        ("newer format", "has format 99; this version reads format 3"),
        ("no weights", "weights.safetensors is missing"),
        ("flipped bit", "checksum differs"),
        ("cut off", "checksum differs"),
        ("other head", 'head of unknown kind "oracle"'),
        ("no encoder", "encoder.onnx is missing"),
        ("other encoder", "encoder.onnx is damaged: its checksum differs"),
    ],
)
def test_damage_gives_a_clear_error(saved: Path, change: str, message: str) -> None:
    damage(saved, change)
    with pytest.raises(StoreError, match=message):
        lw.load(saved)


def test_any_flipped_bit_of_the_description_is_told(saved: Path) -> None:
    """Without a checksum 4 of 150 such bits changed the name of a label unnoticed."""
    content = (saved / ABOUT).read_bytes()
    assert digest_of(saved) in content.decode()
    unnoticed = []
    for at in range(
        len(content)
    ):  # every byte, one of its bits in turn; all bits of what says that there is a checksum
        for bit in range(8) if at < 40 else [at % 8]:
            flipped = content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]
            (saved / ABOUT).write_bytes(flipped)
            with suppress(StoreError):
                digest_of(saved)
                if json.loads(flipped) != json.loads(content):  # the 17th digit of a number may say nothing
                    unnoticed.append((at, bit))
    assert unnoticed == []
    (saved / ABOUT).write_bytes(content[:-50])
    with pytest.raises(StoreError, match=r"classifier\.json is damaged: it is not JSON"):
        lw.load(saved)


def test_a_description_that_was_edited_on_purpose(saved: Path) -> None:
    text = (saved / ABOUT).read_text()
    (saved / ABOUT).write_text(text.replace("blob 0", "robin"))
    with pytest.raises(
        StoreError, match=r'does not match its checksum.*damaged or edited.*remove its entry "checksum"'
    ):
        lw.load(saved)
    first, _, *others = (saved / ABOUT).read_text().splitlines()
    (saved / ABOUT).write_text("\n".join([first, *others]))
    assert lw.load(saved).labels.names[0] == "robin"
    (saved / ABOUT).write_text(json.dumps(json.loads(text), indent=4))
    assert lw.load(saved).labels.names[0] == "blob 0"  # the layout of the file says nothing
    (saved / ABOUT).write_text(json.dumps({**json.loads(text), "note": "mine"}))
    with pytest.raises(StoreError, match="does not match its checksum"):
        lw.load(saved)


def test_a_saved_classifier_has_one_kind_of_checksum(saved: Path) -> None:
    assert not any(b"crc32" in file.read_bytes() for file in saved.iterdir())


def test_loading_never_unpickles(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pickle.Unpickler", "pickle.load", "pickle.loads", "torch.load"):
        monkeypatch.setattr(name, None)
    lw.load(saved)


SMALL = Path(__file__).parents[1] / "golden" / "folders" / "discriminant.lw"


def other_one() -> lw.Classifier:
    """A classifier of the same labels, with another description and other arrays."""
    small = lw.load(SMALL)
    return replace(small, calibration=replace(small.calibration, offset=small.calibration.offset + 1, temperature=2.0))


def test_a_folder_that_is_replaced_while_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was called damaged; where the labels stayed, a description was joined to arrays of another classifier."""
    lw.save(lw.load(SMALL), place := tmp_path / "m.lw")
    other, writes = other_one(), [True]

    def read_late(file: Path) -> tuple[dict[str, np.ndarray], dict[str, object]]:
        if writes and writes.pop():
            lw.save(other, place, overwrite=True)
        return read_arrays(file)

    monkeypatch.setattr("labelwise.core.load.read_arrays", read_late)
    loaded = lw.load(place).calibration
    assert loaded.temperature == other.calibration.temperature
    assert np.array_equal(loaded.offset, other.calibration.offset)


def test_the_moment_between_two_versions_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lw.save(lw.load(SMALL), place := tmp_path / "m.lw")
    old = place.rename(tmp_path / ".m.lw.1.old")
    with monkeypatch.context() as patch:
        patch.setattr("labelwise.core.load.sleep", lambda _: old.rename(place))
        lw.load(place)
    place.rename(old)
    monkeypatch.setattr("labelwise.core.load.PAUSE", 0)
    with pytest.raises(StoreError, match="rename it back"):
        lw.load(place)


def test_of_two_that_write_at_once_the_last_one_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one failed, left its old version behind, and could not write there any more."""
    lw.save(other_one(), place := tmp_path / "m.lw")
    rename, races = Path.rename, [True]

    def late(self: Path, target: Path) -> Path:
        if (self.suffix, target) == (".part", place) and races and races.pop():
            shutil.copytree(SMALL, target)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", late)
    lw.save(other_one(), place, overwrite=True)
    assert lw.load(place).calibration.temperature == 2
    assert [one.name for one in tmp_path.iterdir()] == ["m.lw"]
