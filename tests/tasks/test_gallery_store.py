"""A gallery on disk: the answers of one in memory, changed part by part, by several writers, stopped, damaged."""

import multiprocessing
import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from PIL import Image

import labelwise as lw
from labelwise.api import retrieve
from labelwise.support.errors import StoreError, UsageError
from labelwise.tasks import gallery_files as module
from labelwise.tasks.gallery import Gallery, make_gallery
from labelwise.tasks.gallery_files import add_files, dates_of, gallery_of_files
from labelwise.tasks.gallery_store import StoredGallery, create_gallery, open_gallery
from labelwise.tasks.similarity import By
from tests.contract.subjects import trained
from tests.methods.words.samples import colours, pictures, read_colours
from tests.pixels_of import px
from tests.tasks.test_retrieve import TEST, gallery

pytestmark = pytest.mark.skipif(find_spec("lancedb") is None, reason="needs the extra gallery")


def stored(path: Path, method: str = "softmax", by: By = "similarity") -> StoredGallery:
    """Return the pictures of the test split, in two parts, a label for each."""
    classifier, whole = trained(method), gallery(method)
    new = create_gallery(path, classifier, by)
    for rows in (slice(0, 30), slice(20, None)):  # ten of them twice
        labels = tuple(f"blob {target}" for target in TEST.targets[rows].tolist())
        part = make_gallery(classifier, px(TEST)[rows], whole.files[rows], labels)
        new.add(classifier, part, [f"2026-05-{1 + target:02}" for target in TEST.targets[rows].tolist()])
    return new


@pytest.mark.parametrize(
    ("method", "by"),
    [("softmax", "similarity"), ("prototype", "similarity"), ("prototype", "sum"), ("softmax", "whitened")],
)
@pytest.mark.parametrize("index", [False, True])
def test_answers_are_those_of_a_gallery_in_memory(method: str, by: By, index: bool, tmp_path: Path) -> None:
    stored(tmp_path / "my photos.lance", method, by).tidy(at_least=2 if index else 10**6)
    disk, classifier = open_gallery(tmp_path / "my photos.lance"), trained(method)
    assert (tmp_path / "my photos.lance" / "indexed").exists() == index
    assert len(disk) == len(TEST)
    assert disk.by == ("whitened" if by == "whitened" else "cosine")
    for approximate in (None, False):
        here = retrieve(classifier, px(TEST)[:5], disk, 4, by=by, candidates=len(TEST), approximate=approximate)
        right = retrieve(classifier, px(TEST)[:5], gallery(method), 4, by=by, candidates=len(TEST))
        for row, other in zip(here, right, strict=True):
            assert [match.file for match in row] == [match.file for match in other]
            assert [match.score for match in row] == pytest.approx([match.score for match in other], abs=1e-5)


def test_whitened_neighbours_are_looked_for_among_whitened_ones(tmp_path: Path) -> None:
    classifier, disk, asked = trained("softmax"), stored(tmp_path / "g.lance", by="whitened"), px(TEST)[:20]

    def files(searched: Gallery | StoredGallery, candidates: int | None) -> list[set[str]]:
        rows = retrieve(classifier, asked, searched, 2, by="whitened", candidates=candidates)
        return [{match.file for match in row} for row in rows]

    right = files(gallery(), None)
    assert files(disk, 4) == right != files(gallery(), 2)  # near by the cosine of plain embeddings are others
    with pytest.raises(UsageError, match=r"holds whitened embeddings .* Search with --by whitened"):
        retrieve(classifier, px(TEST)[:1], disk, 1, by="cosine")
    with pytest.raises(UsageError, match="holds plain embeddings"):
        retrieve(classifier, px(TEST)[:1], stored(tmp_path / "h.lance"), 1, by="whitened")


def test_filters_and_removal(tmp_path: Path) -> None:
    disk, classifier = stored(tmp_path / "g.lance"), trained("softmax")
    ones = retrieve(classifier, px(TEST)[:1], disk, len(TEST), where="label = 'blob 1' and date >= '2026-05-02'")[0]
    assert len(ones) == int((TEST.targets == 1).sum())
    assert {match.label for match in ones} == {"blob 1"}
    assert retrieve(classifier, px(TEST)[:1], disk, 3, where="label = 'no such'") == [[]]
    with pytest.raises(UsageError, match=r"Cannot filter.*Give a condition on file, label, date, folder"):
        retrieve(classifier, px(TEST)[:1], disk, 3, where="colour = 'red'")
    with pytest.raises(UsageError, match="Only a gallery on disk"):
        retrieve(classifier, px(TEST)[:1], gallery(), 3, where="label = 'blob 1'")
    disk.tidy(at_least=2)
    assert disk.remove("label = 'blob 1'") == len(ones)
    assert disk.remove("label = 'blob 1'") == 0
    left = retrieve(classifier, px(TEST)[:1], disk, len(TEST), approximate=False)[0]
    assert len(left) == len(disk) == len(TEST) - len(ones)
    assert "blob 1" not in {match.label for match in left}
    with pytest.raises(UsageError, match="Cannot filter"):
        disk.remove("nonsense ~ 3")


def test_other_models_are_refused(tmp_path: Path) -> None:
    disk, other = stored(tmp_path / "g.lance"), trained("prototype")
    with pytest.raises(UsageError, match=r"was made by <Classifier: softmax.*another model"):
        retrieve(other, px(TEST)[:1], disk, 1)
    with pytest.raises(UsageError, match="another model"):
        create_gallery(tmp_path / "g.lance", other)
    with pytest.raises(UsageError, match="another model"):
        disk.add(trained("softmax"), gallery("prototype"))
    with pytest.raises(UsageError, match=r"must end in \.lance"):
        create_gallery(tmp_path / "g.table", other)
    with pytest.raises(StoreError, match="is not a gallery"):
        open_gallery(tmp_path / "none.lance")


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lancedb", None)
    with pytest.raises(UsageError, match=r'pip install "labelwise\[gallery\]"'):
        create_gallery(tmp_path / "g.lance", trained("softmax"))
    assert not (tmp_path / "g.lance").exists()


def test_damage_is_told(tmp_path: Path) -> None:
    disk, classifier = stored(tmp_path / "g.lance"), trained("softmax")
    assert disk.verify() == len(TEST)
    files = sorted((tmp_path / "g.lance").glob("images.lance/data/*"))
    content = bytearray(files[0].read_bytes())
    content[100] ^= 1  # a bit of an embedding
    files[0].write_bytes(content)
    for ask in (
        lambda: open_gallery(disk.path).verify(),
        lambda: retrieve(classifier, px(TEST)[:1], open_gallery(disk.path), len(TEST)),
    ):
        with pytest.raises(StoreError, match=r"is damaged: the row of .* has changed"):
            ask()
    files[0].write_bytes(content[:50])
    with pytest.raises(StoreError, match="cannot be read or written"):
        open_gallery(disk.path).verify()


def _write(path: str, names: list[str]) -> None:
    """Add pictures one at a time: what another process does."""
    classifier, whole = trained("softmax"), gallery()
    disk = create_gallery(path, classifier)
    for name in names:
        row = whole.files.index(name)
        disk.add(classifier, Gallery(embeddings=whole.embeddings[row : row + 1], files=(name,), probe=whole.probe))


def test_two_writers_at_once_and_one_that_is_killed(tmp_path: Path) -> None:
    path, names = tmp_path / "g.lance", [f"{i}.png" for i in range(16)]
    create_gallery(path, trained("softmax"))
    spawn = multiprocessing.get_context("spawn")  # LanceDB's threads do not survive a fork
    other, disk = spawn.Process(target=_write, args=(str(path), names[::-1])), open_gallery(path)
    other.start()
    while not len(disk) and other.is_alive():
        time.sleep(0.005)
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(_write, str(path), part) for part in (names, names[::-1])]
        assert other.pid is not None
        os.kill(other.pid, signal.SIGKILL)
        for writer in writers:
            writer.result()
    other.join()
    assert (len(disk), set(disk.rows_of(names)), disk.verify()) == (16, set(names), 16)  # each once


def test_a_build_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    classifier, files = trained("softmax"), list[str]()
    for i in range(7):
        file = tmp_path / "it's here" / f"{i}.png"
        file.parent.mkdir(exist_ok=True)
        Image.fromarray((px(TEST)[i].permute(1, 2, 0) * 255).byte().squeeze(-1).numpy()).save(file)
        files.append(str(file))
    (tmp_path / "it's here" / "broken.png").write_text("no picture")
    files.insert(3, str(tmp_path / "it's here" / "broken.png"))
    monkeypatch.setattr(module, "READ", 2)
    disk = create_gallery(tmp_path / "g.lance", classifier)
    read, whole = list[str](), gallery_of_files

    def stopping(classifier: object, some: list[str], **how: bool) -> object:
        read.extend(some)
        if len(read) > 4:
            raise KeyboardInterrupt
        return whole(classifier, some, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(module, "gallery_of_files", stopping)
        with pytest.raises(KeyboardInterrupt):
            add_files(disk, classifier, files)
    assert len(open_gallery(disk.path)) == 3
    skipped = add_files(open_gallery(disk.path), classifier, files, label="blob")
    assert [Path(one.file).name for one in skipped] == ["broken.png"]
    assert disk.files_below(tmp_path / "it's here") == set(files) - {files[3]}
    assert disk.files_below(tmp_path / "it's") == set()
    matches = retrieve(classifier, files[0], disk, 9, where=f"date >= '{dates_of(files[:1])[0][:4]}'")[0]
    assert matches[0].file == files[0]
    assert sorted(match.label or "" for match in matches) == ["", "", "", *["blob"] * 4]
    disk.remove_files(files[:2])
    assert len(disk) == 5


def test_parts_are_whole(tmp_path: Path) -> None:
    disk, classifier, part = create_gallery(tmp_path / "g.lance", trained("softmax")), trained("softmax"), gallery()
    wrong = part.embeddings.copy()
    wrong[3, 0] = float("nan")
    with pytest.raises(UsageError, match="finite numbers"):
        disk.add(classifier, replace(part, embeddings=wrong))
    with pytest.raises(UsageError, match="A date for each image or none"):
        disk.add(classifier, part, ["2026-05-01"])
    assert len(disk) == 0
    assert disk.add(classifier, part) == len(part)
    assert disk.add(classifier, part) == 0


@pytest.mark.parametrize("method", ["words", "clarel"])
def test_a_sentence_finds_what_it_finds_in_memory(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if method == "words":
        read_colours(monkeypatch)
        images, _ = pictures()
        classifier = lw.fit(images, names=["scarlet", "emerald"], vocabulary=str(colours(tmp_path)))
    else:
        classifier, images = lw.Classifier.of(trained(method)), px(TEST)[:60]
    files = tuple(f"my photos/{i}.png" for i in range(len(images)))
    whole = make_gallery(classifier, images, files, tuple("odd" if i % 2 else "even" for i in range(len(files))))
    disk = create_gallery(tmp_path / "my photos.lance", classifier)
    disk.add(classifier, whole)
    here, right = (classifier.retrieve_by_text("something red", each, k=5) for each in (disk, whole))
    assert [match.file for match in here] == [match.file for match in right]
    assert [match.score for match in here] == pytest.approx([match.score for match in right], rel=1e-4)
    some = lw.retrieve_by_text(classifier, "something red", disk, 5, where="label = 'odd'")
    assert {match.label for match in some} == {"odd"}
