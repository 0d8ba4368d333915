"""Images are read when asked for; to select and join them reads nothing, and the same content has the same digest."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from labelwise.images import digests, file_images
from labelwise.images.as_images import Uploads
from labelwise.images.file_images import FileImages
from labelwise.images.images import Array, ArrayImages, FeatureRows, Images, Unreadable, join, read_all
from labelwise.support.errors import DataError, UsageError
from tests.images.samples import encoded, noise

SHAPE = (3, 8, 8)
PIXELS = np.random.default_rng(0).integers(0, 256, (6, *SHAPE), dtype=np.uint8)


def files(folder: Path) -> list[Path]:
    """The same images as files."""
    paths = []
    for i, image in enumerate(PIXELS):
        paths.append(folder / f"{i}.png")
        Image.fromarray(image.transpose(1, 2, 0)).save(paths[-1])
    return paths


@pytest.fixture(params=["arrays", "files", "uploads", "joined"])
def images(request: pytest.FixtureRequest, tmp_path: Path) -> Images:
    """The same images, held in every way."""
    paths = files(tmp_path)
    ways: dict[str, Images] = {
        "arrays": ArrayImages(PIXELS),
        "files": FileImages(paths),
        "uploads": Uploads([path.read_bytes() for path in paths]),
        "joined": join([ArrayImages(PIXELS[:2]), FileImages(paths[2:])]),
    }
    return ways[str(request.param)]


def test_rows_are_read_in_the_order_asked_for(images: Images) -> None:
    assert isinstance(images, Images)
    assert len(images) == len(images.ids) == 6
    assert np.array_equal(np.stack(images.read([4, 0, 4], SHAPE)), PIXELS[[4, 0, 4]])  # type: ignore[arg-type]
    assert np.array_equal(read_all(images, SHAPE), PIXELS)
    small = read_all(images, (1, 4, 5), "stretch")
    assert small.shape == (6, 1, 4, 5)
    assert np.array_equal(small, read_all(ArrayImages(PIXELS), (1, 4, 5), "stretch"))


def test_a_selection_reads_its_rows_alone_and_keeps_names_and_digests(images: Images) -> None:
    some = images.select([5, 1]).select(np.array([False, True]))
    assert list(some.ids) == [images.ids[1]]
    assert np.array_equal(read_all(some, SHAPE), PIXELS[[1]])
    assert list(some.digests()) == [images.digests()[1]]
    assert len(set(images.digests())) == 6
    assert {len(each) for each in images.digests()} == {16}
    both = join([images.select([0]), images.select([]), images.select([3, 2])])
    assert np.array_equal(read_all(both, SHAPE), PIXELS[[0, 3, 2]])
    assert list(both.digests()) == [images.digests()[i] for i in (0, 3, 2)]
    assert len(read_all(images.select([]), SHAPE)) == 0


def test_equal_content_has_one_digest_and_other_content_another(tmp_path: Path) -> None:
    one = tmp_path / "one.png"
    one.write_bytes(encoded(Image.fromarray(noise(4, 4))))
    same = [FileImages([one]).digests()[0], Uploads([one.read_bytes()]).digests()[0]]
    assert same[0] == same[1]
    twice = np.zeros((2, 3, 2, 2), np.uint8)
    assert len(set(ArrayImages(twice).digests())) == 1
    assert ArrayImages(twice).digests()[0] != ArrayImages(twice.reshape(2, 3, 4, 1)).digests()[0]
    assert FeatureRows(np.eye(2)).digests()[0] != FeatureRows(np.eye(2)).digests()[1]


def test_files_are_hashed_once_as_long_as_they_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, log = files(tmp_path), list[object]()
    monkeypatch.setenv("LABELWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "FRESH", -1e18)  # files are old
    hash_of = file_images.content_digest
    monkeypatch.setattr(file_images, "content_digest", lambda path: log.append(path) or hash_of(path))  # type: ignore[func-returns-value]
    images = FileImages(paths)
    first = list(images.select([1, 2]).digests()) + list(images.digests())[3:]
    assert len(log) == 6
    assert list(FileImages(paths).digests())[1:] == first
    assert len(log) == 6
    paths[2].write_bytes(paths[3].read_bytes())
    changed = FileImages(paths).digests()
    assert changed[2] == changed[3]
    assert len(log) == 7


def test_what_is_remembered_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[object] = []
    before = file_images.decode

    def decode(file: file_images.Content, *how: object) -> Array:
        log.append(file)
        return before(file, *how)  # type: ignore[arg-type]

    monkeypatch.setattr(file_images, "decode", decode)
    images = FileImages(files(tmp_path))
    images.remember(SHAPE)
    for some in (images.select([3, 3, 1]), images, images.select([1, 5])):
        assert np.array_equal(read_all(some, SHAPE), PIXELS[some.rows])
    assert len(log) == 6
    read_all(images, (3, 4, 4))
    assert len(log) == 12  # another shape is not remembered
    monkeypatch.setenv("LABELWISE_MEMORY_MB", "0")
    large = FileImages(files(tmp_path))
    large.remember(SHAPE)
    assert read_all(large, SHAPE).shape == read_all(large, SHAPE).shape
    assert len(log) == 24


def test_a_copy_with_read_only_arrays_reads(tmp_path: Path) -> None:
    """As Ray hands objects to its workers: arrays lie in memory that they share."""
    images, buffers = FileImages(files(tmp_path)), list[pickle.PickleBuffer]()
    images.remember(SHAPE)
    content = pickle.dumps(images, protocol=5, buffer_callback=buffers.append)
    copy = pickle.loads(content, buffers=[bytes(buffer) for buffer in buffers])
    assert np.array_equal(read_all(copy, SHAPE), PIXELS)
    assert copy.known_readable().all()
    assert not images.known_readable().any()


def test_what_cannot_be_read_says_why(tmp_path: Path) -> None:
    paths = files(tmp_path)
    paths[1].write_bytes(b"no picture")
    images = FileImages([*paths, tmp_path / "gone.png"])
    read = images.read(range(7), SHAPE)
    faults = {i: each.reason for i, each in enumerate(read) if isinstance(each, Unreadable)}
    assert set(faults) == {1, 6}
    assert "known format" in faults[1]
    assert "no such file" in faults[6]
    with pytest.raises(DataError, match=r"2 of 7 images cannot be read. .*1.png: it is not an image"):
        read_all(images, SHAPE)
    assert len(set(images.digests())) == 7  # none is taken for another


def test_features_have_one_shape_and_are_finite() -> None:
    rows = FeatureRows(np.arange(6, dtype=np.float64).reshape(3, 2))
    assert rows.shape == (2,)
    assert np.array_equal(read_all(rows.select([2, 0]), (2,)), [[4, 5], [0, 1]])
    assert read_all(rows, (2,)).dtype == np.float32
    assert np.array_equal(read_all(join([rows, FeatureRows(np.ones((1, 2)))]), (2,))[3], [1, 1])
    with pytest.raises(UsageError, match=r"takes features, numbers \[n, 5\]; given \[3, 2\]"):
        rows.read([0], (5,))
    with pytest.raises(UsageError, match=r"takes images of shape \[3, 8, 8\]; given \[3, 2\]"):
        read_all(rows, SHAPE)
    with pytest.raises(DataError, match=r"Row 1 of the features .* \(NaN or infinity\)"):
        FeatureRows(np.array([[0, 1], [np.nan, 1]]))
    with pytest.raises(DataError, match=r"Images must be bytes \(uint8\) \[n, channels"):
        ArrayImages(np.zeros((2, 3, 4, 4), np.float32))
