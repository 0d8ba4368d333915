"""An index of a gallery: it finds what lies in the regions it looks through, and follows the gallery row by row."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from labelwise.api import retrieve
from labelwise.support.errors import StoreError, UsageError
from labelwise.support.files import read_arrays, write_arrays
from labelwise.support.rows import unit_rows
from labelwise.tasks import gallery_index as module
from labelwise.tasks import retrieve as retrieving
from labelwise.tasks.gallery import Gallery, load_gallery
from labelwise.tasks.gallery_index import Index, Lists, digest_of, make_index, region_count
from labelwise.tasks.retrieve import search
from tests.contract.subjects import trained
from tests.pixels_of import px
from tests.tasks.test_retrieve import TEST, gallery

MANY = 2_000


@pytest.fixture
def no_faiss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)


def random_embeddings(count: int = MANY, method: str = "softmax") -> NDArray[np.float32]:
    """Return embeddings in clusters, as wide as those of a method."""
    size, drawn = trained(method).encode(px(TEST)[:1]).shape[1], np.random.default_rng(1)
    centres = drawn.standard_normal((20, size), np.float32)
    labels = drawn.integers(20, size=count)
    return np.float32(3) * (centres[labels] + np.float32(0.4) * drawn.standard_normal((count, size), np.float32))


def nearest(embeddings: NDArray[np.float32], centres: NDArray[np.float32]) -> NDArray[np.int32]:
    return np.asarray((unit_rows(embeddings) @ centres.T).argmax(1), np.int32)


def by_hand(embeddings: NDArray[np.float32]) -> Index:
    """Return an index whose centres are the first five embeddings; it needs no faiss."""
    centres = unit_rows(embeddings[:5])
    regions = nearest(embeddings, centres)
    return Index(centres=centres, regions=regions, digest=digest_of(embeddings, centres, regions))


def indexed(rows: slice = slice(None), method: str = "softmax") -> Gallery:
    plain = gallery(method, rows)
    return replace(plain, index=by_hand(plain.embeddings))


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_answers_are_those_of_an_exact_search_where_all_regions_are_looked_at(method: str) -> None:
    pytest.importorskip("faiss")
    classifier, searched = trained(method), gallery(method).with_index()
    found = retrieve(classifier, px(TEST)[:9], searched, 4, candidates=20, approximate=True)
    exact = retrieve(classifier, px(TEST)[:9], searched, 4, candidates=20)
    assert [[match.file for match in row] for row in found] == [[match.file for match in row] for row in exact]
    for row, right in zip(found, exact, strict=True):
        assert [match.score for match in row] == pytest.approx([match.score for match in right], abs=1e-5)
    assert len(retrieve(classifier, px(TEST)[0], searched, 10**6, approximate=True)[0]) == len(searched)


@pytest.mark.parametrize("looked_at", [1, 3])
def test_only_the_nearest_regions_are_looked_through(looked_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(module, "LOOKED_AT", looked_at)
    monkeypatch.setattr(module, "CHUNK", 1_000)
    model, embeddings = trained("softmax").head, random_embeddings()
    index = make_index(embeddings)
    assert len(index.centres) == region_count(MANY) == 50
    np.testing.assert_allclose(np.linalg.norm(index.centres, axis=1), 1, rtol=1e-5)
    unit = unit_rows(embeddings)
    assert np.array_equal(index.regions, nearest(embeddings, index.centres))
    monkeypatch.setattr(
        retrieving, "SPARE", 200
    )  # more than there are: the rest is none, and no reason to look elsewhere
    monkeypatch.delattr(retrieving, "_nearest")
    _, places = search(model, embeddings[:30], embeddings, 3, lists=Lists(index, embeddings))
    for query, found in zip(unit[:30], places.tolist(), strict=True):
        looked_through = np.argsort(-(index.centres @ query))[:looked_at]
        there = np.flatnonzero(np.isin(index.regions, looked_through))
        assert found == there[np.argsort(-(unit[there] @ query))[:3]].tolist()


def test_most_of_the_best_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(module, "LOOKED_AT", 8)
    model, embeddings = trained("softmax").head, random_embeddings()
    scores, places = search(model, embeddings[:100], embeddings, 10, lists=Lists(make_index(embeddings), embeddings))
    best, right = search(model, embeddings[:100], embeddings, 10)
    hits = (places[:, :, None] == right[:, None]).any(1)
    assert float(hits.mean()) > 0.9
    np.testing.assert_allclose(scores[:, 0], best[:, 0], rtol=1e-5)  # each embedding is its own best


@pytest.mark.parametrize("method", ["softmax", "prototype"])
def test_a_query_that_finds_too_few_is_searched_exactly(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(module, "LOOKED_AT", 1)
    model, embeddings = trained(method).head, random_embeddings(method=method)
    index = by_hand(embeddings)
    sizes = np.bincount(index.regions)[index.regions[:60]]
    k = int(np.median(sizes))
    scores, places = search(model, embeddings[:60], embeddings, k, k, Lists(index, embeddings))
    exact, _ = search(model, embeddings[:60], embeddings, k, k)
    short = sizes < k
    assert short.any()
    assert not short.all()
    np.testing.assert_allclose(scores[short], exact[short], atol=1e-5, rtol=1e-5)
    assert int(places.min()) >= 0
    assert all(len(set(row)) == k for row in places.tolist())


def test_joined_and_left_over_have_the_index_of_what_is_there(no_faiss: None) -> None:
    joined = indexed(slice(20)).join(gallery(rows=slice(20, 40)))
    assert joined.index is not None
    assert np.array_equal(joined.index.regions, nearest(joined.embeddings, joined.index.centres))
    joined.index.check(joined.embeddings)
    left = joined.remove(joined.files[3:30:2])
    assert left.index is not None
    left.index.check(left.embeddings)
    assert np.array_equal(left.index.regions, nearest(left.embeddings, left.index.centres))
    assert gallery(rows=slice(2)).join(indexed(slice(2, 20))).index is None
    emptied = joined.remove(joined.files)
    assert emptied.index is not None
    assert len(emptied.index.regions) == 0


def test_what_was_removed_is_never_found() -> None:
    pytest.importorskip("faiss")
    whole = gallery(rows=slice(20)).with_index().join(gallery(rows=slice(20, None)))
    gone = set(whole.files[::3])
    left = whole.remove(gone)
    found = retrieve(trained("softmax"), px(TEST), left, 3, approximate=True)
    assert not gone & {match.file for row in found for match in row}
    assert all(row[0].file == name for row, name in zip(found, whole.files, strict=True) if name not in gone)
    again = left.join(gallery(rows=slice(1)))
    assert retrieve(trained("softmax"), px(TEST)[0], again, 1, approximate=True)[0][0].file == whole.files[0]


def test_saved_and_loaded(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    searched = gallery().with_index()
    searched.save(tmp_path / "g")
    again = load_gallery(tmp_path / "g")
    assert again.index is not None
    assert searched.index is not None
    assert np.array_equal(again.index.centres, searched.index.centres)
    asked = trained("softmax"), px(TEST)[:3]
    assert retrieve(*asked, again, approximate=True) == retrieve(*asked, searched, approximate=True)
    gallery().save(tmp_path / "plain")
    assert load_gallery(tmp_path / "plain").index is None


def test_an_index_of_other_embeddings_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    searched = gallery().with_index()
    assert searched.index is not None
    embeddings = searched.embeddings.copy()
    embeddings[7, 3] += 1e-3
    for wrong in (embeddings, embeddings[:, :-1]):
        changed = replace(searched, embeddings=wrong)
        with pytest.raises(UsageError, match=r"does not match its \d+ embeddings"):
            _ = changed.lists
        with pytest.raises(UsageError, match="does not match"):
            changed.remove(changed.files[:1])
    with pytest.raises(UsageError, match="does not match"):
        replace(searched, embeddings=embeddings, files=tuple(f"other {f}" for f in searched.files)).join(searched)
    assert replace(changed, embeddings=embeddings, index=None).with_index().lists
    searched.save(tmp_path / "g")
    arrays, about = read_arrays(tmp_path / "g")
    regions = (arrays["regions"] + 1) % len(arrays["centres"])  # each is there, and none is right
    assert len(arrays["centres"]) > 1
    write_arrays(tmp_path / "turned", arrays | {"regions": regions}, about)
    damaged = load_gallery(tmp_path / "turned")
    with pytest.raises(UsageError, match="does not match"):
        retrieve(trained("softmax"), px(TEST)[0], damaged, approximate=True)
    assert retrieve(trained("softmax"), px(TEST)[0], damaged, 1)[0][0].file == searched.files[0]


@pytest.mark.parametrize(
    "change", [lambda r: r - 1, lambda r: r + 10**6, lambda r: r.astype(np.float32), lambda r: r[:, None]]
)
def test_a_damaged_index_is_no_index(change: object, tmp_path: Path, no_faiss: None) -> None:
    assert callable(change)
    indexed().save(tmp_path / "g")
    arrays, about = read_arrays(tmp_path / "g")
    write_arrays(tmp_path / "bad", arrays | {"regions": change(arrays["regions"])}, about)
    with pytest.raises(StoreError, match=r"index in .* is damaged"):
        load_gallery(tmp_path / "bad")
    del arrays["centres"]
    write_arrays(tmp_path / "bad", arrays, about)
    with pytest.raises(StoreError, match=r"index in .* is damaged"):
        load_gallery(tmp_path / "bad")


def test_an_index_is_made_again_when_the_gallery_has_outgrown_it() -> None:
    pytest.importorskip("faiss")
    small = gallery(rows=slice(2)).with_index()
    assert small.with_index() is small
    embeddings = random_embeddings(100)
    more = Gallery(embeddings=embeddings, files=tuple(f"more {i}" for i in range(100)), probe=small.probe)
    grown = small.join(more)
    assert grown.index is not None
    assert grown.index.outgrown
    anew = grown.with_index()
    assert anew.index is not None
    assert len(anew.index.centres) == region_count(102) == 2
    assert not anew.index.outgrown


def test_without_faiss_it_is_said_what_to_install(no_faiss: None) -> None:
    with pytest.raises(UsageError, match=r'needs faiss: pip install "labelwise\[search\]"'):
        gallery().with_index()
    with pytest.raises(UsageError, match=r"labelwise\[search\]"):
        retrieve(trained("softmax"), px(TEST)[0], indexed(), approximate=True)
    assert retrieve(trained("softmax"), px(TEST)[0], indexed(), 1)[0][0].file == gallery().files[0]


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="has no index"):
        retrieve(trained("softmax"), px(TEST)[0], gallery(), approximate=True)
    pytest.importorskip("faiss")
    searched = gallery().with_index()
    with pytest.raises(UsageError, match="candidates=None"):
        retrieve(trained("softmax"), px(TEST)[0], searched, candidates=None, approximate=True)
    with pytest.raises(UsageError, match=r"for 3, and candidates=100"):
        search(trained("softmax").head, searched.embeddings[:1], searched.embeddings[:3], 1, lists=searched.lists)
    with pytest.raises(UsageError, match="given 0 embeddings"):
        make_index(searched.embeddings[:0])
    with pytest.raises(UsageError, match="finite numbers"):
        make_index(np.full_like(searched.embeddings, np.nan))
