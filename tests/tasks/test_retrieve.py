from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.api import retrieve
from labelwise.core.head import Compares
from labelwise.support.errors import DataError, StoreError, UsageError
from labelwise.tasks import retrieve as module
from labelwise.tasks.gallery import Gallery, load_gallery, make_gallery
from labelwise.tasks.gallery_files import gallery_of_files
from labelwise.tasks.retrieve import search
from labelwise.tasks.similarity import similarity_matrix
from tests.conftest import blobs
from tests.contract.subjects import roundtrip, trained
from tests.pixels_of import px

TEST = blobs().split("test")
NAMES = tuple(f"{i}.png" for i in range(len(TEST)))


def gallery(method: str = "softmax", rows: slice = slice(None)) -> Gallery:
    return make_gallery(trained(method), px(TEST)[rows], NAMES[rows])


@pytest.mark.parametrize("method", ["softmax", "prototype"])
@pytest.mark.parametrize("chunk", [1, 100, 2**24])
def test_exact_search_is_the_sorted_similarity(method: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    model = trained(method).head
    embeddings = np.asarray(trained(method).encode(TEST.images))
    with torch.no_grad():
        every = np.asarray(
            similarity_matrix(
                model, np.asarray(torch.tensor(embeddings[:9])), np.asarray(torch.tensor(embeddings)), "similarity"
            )
        )
    slow = -np.sort(-every, axis=1)
    scores, places = search(model, embeddings[:9], embeddings, 4, candidates=None)
    np.testing.assert_allclose(scores, slow[:, :4], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(every, places, 1), scores, atol=1e-5, rtol=1e-5)
    assert all(len(set(row)) == 4 for row in places.tolist())


@pytest.mark.parametrize("chunk", [1, 2**24])
def test_candidates_by_cosine_are_ranked_by_the_learned_similarity(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", chunk)
    model, embeddings = trained("prototype").head, np.asarray(trained("prototype").encode(TEST.images))
    assert isinstance(model, Compares)
    scores, places = search(model, embeddings[:6], embeddings, 3, candidates=10)
    unit = embeddings / np.linalg.norm(embeddings, axis=1, keepdims=True)
    for query in range(6):
        near = np.argsort(-(unit @ unit[query]))[:10]
        alike = model.similarity(embeddings[query : query + 1], embeddings[near])[0]
        np.testing.assert_allclose(scores[query], -np.sort(-alike)[:3], atol=1e-5, rtol=1e-5)
        assert set(places[query].tolist()) <= set(near.tolist())
    whole = search(model, embeddings[:6], embeddings, 3, candidates=None)
    most = search(model, embeddings[:6], embeddings, 3, candidates=10**6)
    np.testing.assert_allclose(most[0], whole[0], atol=1e-5, rtol=1e-5)


def test_matches_have_names_and_labels() -> None:
    classifier = trained("softmax")
    labelled = replace(gallery(), labels=tuple(TEST.words(classifier.labels.names)))
    found = retrieve(classifier, px(TEST)[:5], labelled, 3)
    assert [row[0].file for row in found] == list(NAMES[:5])
    assert [row[0].label for row in found] == TEST.words(classifier.labels.names)[:5]
    assert all(row[0].score >= row[1].score >= row[2].score for row in found)
    assert retrieve(classifier, px(TEST)[0], gallery(rows=slice(3)), 10)[0][2].label is None
    assert len(retrieve(classifier, px(TEST)[0], gallery(rows=slice(3)), 10)[0]) == 3


def test_joined_and_left_over_are_as_if_built_at_once() -> None:
    joined = gallery(rows=slice(10)).join(gallery(rows=slice(10, 30)))
    assert joined.files == NAMES[:30]
    np.testing.assert_allclose(joined.embeddings, gallery(rows=slice(30)).embeddings, rtol=1e-5, atol=1e-5)
    left = joined.remove([NAMES[0], NAMES[5]])
    assert left.files == (*NAMES[1:5], *NAMES[6:30])
    assert np.array_equal(left.embeddings, joined.embeddings[[*range(1, 5), *range(6, 30)]])
    with pytest.raises(UsageError, match=r"Not in this gallery of 28 images: 0.png"):
        left.remove([NAMES[0]])
    with pytest.raises(UsageError, match=r"repeated: 0.png"):
        joined.join(gallery(rows=slice(1)))


def test_saved_and_loaded(tmp_path: Path) -> None:
    labelled = replace(gallery(), labels=tuple(TEST.words(blobs().labels.names)))
    labelled.save(tmp_path / "g.safetensors")
    again = load_gallery(tmp_path / "g.safetensors")
    assert (again.files, again.labels) == (labelled.files, labelled.labels)
    assert np.array_equal(again.embeddings, labelled.embeddings)
    (one,), (other,) = (
        retrieve(each, TEST.images[:1], own)
        for each, own in ((roundtrip(trained("softmax")), again), (trained("softmax"), labelled))
    )
    assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-5)
    (tmp_path / "bad").write_bytes(b"not a gallery")
    with pytest.raises(StoreError, match="Cannot read bad"):
        load_gallery(tmp_path / "bad")
    with pytest.raises(StoreError, match="Cannot read nowhere"):
        load_gallery(tmp_path / "nowhere")
    lw.save(trained("softmax"), tmp_path / "m")
    with pytest.raises(StoreError, match="is not a gallery of this version"):
        load_gallery(tmp_path / "m" / "weights.safetensors")


def test_another_model_is_noticed() -> None:
    with pytest.raises(UsageError, match="made by another model"):
        retrieve(trained("indicator"), px(TEST)[0], gallery("softmax"))
    with pytest.raises(UsageError, match="made by another model"):
        gallery("indicator", slice(2)).join(gallery("softmax", slice(2, 4)))
    taught = lw.teach(trained("indicator"), "new", examples=px(TEST)[:3])
    assert retrieve(taught, px(TEST)[0], gallery("indicator"), 1)[0][0].file == NAMES[0]


def test_files_are_read_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelwise.tasks.gallery_files.READ", 3)
    files = [tmp_path / name for name in NAMES[:8]]
    for file, image in zip(files, px(TEST), strict=False):
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(file)
    for i in (1, 3, 4, 5):  # the whole second part
        files[i].write_text("no picture")
    found, skipped = gallery_of_files(trained("softmax"), files)
    assert found.files == tuple(str(files[i]) for i in (0, 2, 6, 7))
    np.testing.assert_allclose(found.embeddings, gallery().embeddings[[0, 2, 6, 7]], rtol=1e-5, atol=1e-5)
    assert [one.file for one in skipped] == [str(files[i]) for i in (1, 3, 4, 5)]
    with pytest.raises(DataError, match=r"1\.png"):
        gallery_of_files(trained("softmax"), files, strict=True)


def test_wrong_use() -> None:
    with pytest.raises(UsageError, match="k = 0"):
        retrieve(trained("softmax"), px(TEST)[0], gallery(), 0)
    with pytest.raises(UsageError, match="given 0 images"):
        retrieve(trained("softmax"), px(TEST)[0], gallery().remove(NAMES))
    with pytest.raises(UsageError, match="given 2 embeddings, 1 names"):
        make_gallery(trained("softmax"), px(TEST)[:2], ["a"])
