"""A journal that the first version wrote is taken over: the files here were written by it."""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from labelwise.core.description import digest_of
from labelwise.core.store import load
from labelwise.server.present import Present, folder_of
from labelwise.support.errors import StoreError
from tests.server.asking import images_of, png, saved, serving

HERE = Path(__file__).parent / "journals"
EXPECTED: dict[str, Any] = json.loads((HERE / "expected.json").read_text())


def line_of(record: dict[str, Any]) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x " % zlib.crc32(text) + text


def laid(tmp_path: Path, name: str, model: str = "softmax") -> tuple[Path, Path]:
    """A model and, beside it, a journal, as if it had been written for this very model."""
    path = saved(tmp_path, model)
    lines = (HERE / f"{name}.journal").read_bytes().split(b"\n")
    lines[0] = line_of({"format": 1, "model": digest_of(path)})
    folder_of(path).mkdir()
    (folder_of(path) / "journal").write_bytes(b"\n".join(lines))
    return path, folder_of(path) / "journal"


def check(present: Present, wanted: dict[str, Any]) -> None:
    served, classifier = present.served, present.served.classifier
    assert served.change == wanted["change"]
    assert list(classifier.labels.names) == wanted["labels"]
    assert sorted(served.state.forgotten) == wanted["forgotten"]
    assert [[one.action, one.label] for one in served.state.undoable] == wanted["undoable"]
    assert set(wanted["described"]) & {one["label"] for one in wanted["taught"]} <= classifier.unseen
    taught = len(wanted["taught"])
    found = [
        {"label": one.label, "from": one.source, "examples": one.examples, "texts": list(one.texts)}
        for one in served.state.taught
    ]
    assert found == wanted["taught"]
    assert classifier.label_embeddings.double().sum(1)[-taught:].tolist() == pytest.approx(
        wanted["sums"][-taught:], abs=1e-5
    )
    assert classifier.calibration.scale[-taught:].tolist() == pytest.approx(wanted["scale"][-taught:], abs=1e-5)
    assert classifier.calibration.offset[-taught:].tolist() == pytest.approx(wanted["offset"][-taught:], abs=1e-5)
    for rows, key in ((classifier.familiarity.memory, "memory"), (classifier.origin.train_hashes, "seen")):
        assert rows is not None
        assert len(rows) == wanted[key]


@pytest.mark.parametrize(("name", "model"), [("long", "softmax"), ("short", "softmax"), ("texts", "clarel")])
def test_a_journal_is_taken_over(name: str, model: str, tmp_path: Path) -> None:
    path, journal = laid(tmp_path, name, model)
    content = journal.read_bytes()
    reader = Present(load(path), path, read_only=True)
    check(reader, EXPECTED[name])
    assert [file.name for file in journal.parent.iterdir()] == ["journal"], "a reader writes nothing"
    for _ in range(2):  # the first start, and another one
        present = Present(load(path), path)
        check(present, EXPECTED[name])
        assert not journal.exists()
        assert (journal.parent / "journal.taken-over").read_bytes() == content
        present.close()
    assert reader.behind() is False
    reader.close()
    present = Present(load(path), path)
    for action, label in reversed(EXPECTED[name]["undoable"]):
        last, _ = present.undo()
        assert (last.action, last.label) == (action, label)
    assert present.served.classifier.labels.names == load(path).labels.names
    assert present.served.change == EXPECTED[name]["change"] + len(EXPECTED[name]["undoable"])
    present.close()


@pytest.mark.parametrize("cut", [1, 5, 9, 40, -2])
def test_a_record_that_was_cut_off_is_set_aside(cut: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, journal = laid(tmp_path, "long")
    *kept, last, end = journal.read_bytes().splitlines(keepends=True)[:6]
    assert b'"new 0"' in last + end
    journal.write_bytes(b"".join([*kept, last, end[:cut]]))
    present = Present(load(path), path)
    assert present.served.change == 4
    present.close()
    (aside,) = journal.parent.glob("torn.*")
    assert aside.read_bytes() == end[:cut]
    assert "cut off" in caplog.text


def test_a_flipped_bit_at_the_end_is_no_record_that_was_cut_off(tmp_path: Path) -> None:
    path, journal = laid(tmp_path, "long")
    content = b"".join(journal.read_bytes().splitlines(keepends=True)[:6])
    last = content.splitlines(keepends=True)[-1]
    for place in (*range(len(content) - len(last), len(content) - 1, len(last) // 12), len(content) - 2):
        damaged = bytearray(content)
        damaged[place] ^= 4
        journal.write_bytes(damaged)
        for read_only in (True, False):
            with pytest.raises(StoreError, match="record 5 differs from its checksum"):
                Present(load(path), path, read_only=read_only)
        (journal.parent / "journal.taken-over").unlink()
        for file in journal.parent.iterdir():
            file.unlink()
    for end in (content[:-1], content[:-1] + b"\x0b"):  # the record itself is whole
        journal.write_bytes(end)
        reader = Present(load(path), path, read_only=True)
        assert reader.served.change == 5
        reader.close()


def test_damage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path, journal = laid(tmp_path, "long")
    lines = journal.read_bytes().split(b"\n")
    lines[2] = lines[2][:-9] + b"XXXXXXXXX"
    journal.write_bytes(b"\n".join(lines))
    for read_only in (True, False, False):
        with pytest.raises(StoreError, match="damaged"):
            Present(load(path), path, read_only=read_only)


def test_a_journal_of_another_model_is_refused(tmp_path: Path) -> None:
    path, journal = laid(tmp_path, "long")
    lines = journal.read_bytes().split(b"\n")
    journal.write_bytes(b"\n".join([line_of({"format": 1, "model": "0" * 64}), *lines[1:]]))
    with pytest.raises(StoreError, match="another model"):
        Present(load(path), path)


def test_a_journal_that_was_written_since_is_not_passed_over(tmp_path: Path) -> None:
    path, journal = laid(tmp_path, "long")
    content = journal.read_bytes()
    Present(load(path), path).close()
    journal.write_bytes(content)
    with pytest.raises(StoreError, match="older version"):
        Present(load(path), path)


def test_a_service_answers_with_what_a_journal_holds(tmp_path: Path) -> None:
    path, _ = laid(tmp_path, "long")
    with serving(path) as client:
        found = client.get("/labels").json()
        assert [one["name"] for one in found["labels"]] == EXPECTED["long"]["labels"]
        assert found["undo"] == {"action": "teach", "label": "blob 1"}
        picture = png(images_of(5)[0])
        answer = client.post("/classify", content=picture, headers={"content-type": "image/png"}).json()
        assert answer["change"] == 7
