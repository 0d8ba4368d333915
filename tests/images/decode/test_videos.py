"""Frames of videos: which ones, their pixels, their answers joined, and files that are none."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.images.as_images import as_images
from labelwise.images.decode.crops import Crop, crop_address, file_of, parse_crop
from labelwise.images.file_images import FileImages
from labelwise.images.sources import videos
from labelwise.images.sources.videos import frames
from labelwise.support.errors import DataError, LabelwiseWarning, UnsupportedError
from tests.images.decode.videos import picture, write_video

pytest.importorskip("av")
SHAPE = (3, 24, 32)


def read(addresses: Sequence[str]) -> np.ndarray:
    images = FileImages(addresses).read(range(len(addresses)), SHAPE)
    return np.stack([one.transpose(1, 2, 0) for one in images if isinstance(one, np.ndarray)])


def test_an_address_names_a_frame_or_a_crop_of_one() -> None:
    assert parse_crop("a b.mp4#t=2.5") == Crop("a b.mp4", None, 2.5)
    address = crop_address("a.avi", (1, 2, 3, 4, True), 0.04)
    assert address == "a.avi#t=0.04&xywh=percent:1,2,3,4"
    assert parse_crop(address) == Crop("a.avi", (1, 2, 3, 4, True), 0.04)
    assert file_of(address) == "a.avi"
    for plain in ("a.mp4", "song#t=2.jpg", "photo.jpg#t=2", "photo.jpg#t=2&xywh=1,2,3,4", "a&xywh=1,2,3,4"):
        assert parse_crop(plain) is None
        assert file_of(plain) == plain


@pytest.mark.parametrize("suffix", [".mkv", ".avi"])
def test_frames_are_those_of_their_times_in_any_order(tmp_path: Path, suffix: str) -> None:
    video = write_video(tmp_path / f"a clip{suffix}", [picture(number) for number in range(7)])
    assert frames(video) == [f"{video}#t={second}" for second in range(4)]
    every = frames(video, 2)
    assert len(every) == 7
    wanted = np.stack([picture(number) for number in range(7)])
    assert (read(every) == wanted).all()
    assert (read(every[::-1]) == wanted[::-1]).all()
    assert (read([f"{video}#t=1.4"]) == wanted[2]).all()  # what is shown then
    box = f"{video}#t=1&xywh=0,0,16,12"
    assert (read([box]) == wanted[2, 0, 0]).all()


def test_a_video_that_is_far_longer_than_its_distance_between_whole_pictures(tmp_path: Path) -> None:
    video = write_video(tmp_path / "long.mp4", [picture(number // 20 % 6) for number in range(600)], 20, "mpeg4")
    places = [27, 3, 29, 4, 16, 0]
    shown = read([f"{video}#t={second}" for second in places])
    wanted = np.stack([picture(second % 6) for second in places])
    assert (
        np.abs(shown.astype(int) - wanted).mean((1, 2, 3)).max() < 8
    )  # it is compressed; other pictures are 10 and more away


def test_a_phone_on_its_side_gives_upright_frames(tmp_path: Path) -> None:
    video = write_video(tmp_path / "phone.mp4", [picture(1)] * 4, codec="mpeg4")
    content = video.read_bytes()
    matrix = [(1, 0, 0), (0, 1, 0)]
    turned = [(0, 1, 0), (-1, 0, 0)]  # by 90 degrees to the right
    code = [
        b"".join((value << 16).to_bytes(4, signed=True) for row in rows for value in row) for rows in (matrix, turned)
    ]
    at = content.index(code[0], content.index(b"tkhd"))
    video.write_bytes(content[:at] + code[1] + content[at + len(code[1]) :])
    (shown,) = FileImages([f"{video}#t=0"]).read([0], (3, 32, 24))
    upright = np.rot90(picture(1), -1).transpose(2, 0, 1)
    assert isinstance(shown, np.ndarray)
    assert np.abs(shown.astype(int) - upright).mean() < 6


def test_what_is_no_video_says_why(tmp_path: Path) -> None:
    good = write_video(tmp_path / "good.mkv", [picture(number) for number in range(8)])
    secret = tmp_path / "secret.mkv"
    secret.write_bytes(good.read_bytes())
    (tmp_path / "list.mp4").write_text(f"#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{secret}\n#EXT-X-ENDLIST\n")
    (tmp_path / "concat.avi").write_text(f"ffconcat version 1.0\nfile '{secret}'\n")
    (tmp_path / "noise.mp4").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "empty.avi").write_bytes(b"")
    cluster = bytes.fromhex("1f43b675")  # which holds the first frame
    (tmp_path / "cut.mkv").write_bytes(good.read_bytes().partition(cluster)[0])
    for name in ("list.mp4", "concat.avi", "noise.mp4", "empty.avi", "cut.mkv", "none.mp4"):
        address = f"{tmp_path / name}#t=0"
        assert frames(tmp_path / name) == [address]
        (one,) = FileImages([address]).read([0], SHAPE)
        assert not isinstance(one, np.ndarray), name
        assert one.reason.endswith((".", ").")), one.reason
    (late,) = FileImages([f"{good}#t=60"]).read([0], SHAPE)
    assert "ends after 3.5 seconds" in str(getattr(late, "reason", ""))


def test_more_frames_than_anybody_wants_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    video = write_video(tmp_path / "a.mkv", [picture(0)] * 4)
    monkeypatch.setattr(videos, "MOST", 3)
    with pytest.raises(DataError, match="2 seconds, which are 4 frames"):
        frames(video, 2)
    with pytest.raises(DataError, match="above 0"):
        frames(video, 0)


def test_frames_in_a_table_are_images_to_train_on_and_videos_in_label_folders_are_named(tmp_path: Path) -> None:
    videos = [f"{label}/{number}.mkv" for label in "ab" for number in range(3)]
    for number, video in enumerate(videos):
        write_video(tmp_path / video, [picture(number)] * 4)
        Image.fromarray(picture(number)).save((tmp_path / video).with_suffix(".png"))
    cells = [f"{video}#t={second},{video[0]},{video}" for video in videos for second in (0, 1.5)]
    (tmp_path / "frames.csv").write_text("\n".join(["path,label,group", *cells]))
    data = lw.data.load(tmp_path / "frames.csv", size=24)
    assert sum(map(len, data.splits.values())) == 12
    assert all(len(set(part.groups)) == len(part) / 2 for part in data.splits.values())
    skipped = lw.data.load(tmp_path, group="none").skipped
    assert ["frames in a table" in one.reason for one in skipped if one.file.endswith(".mkv")] == [True] * 6


def test_a_folder_of_photos_and_videos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "in" / "b.mkv", [picture(0)] * 4)
    Image.fromarray(picture(1)).save(tmp_path / "in" / "a.png")
    ids = list(as_images(tmp_path).ids)
    assert [Path(one).name for one in ids] == ["a.png", "b.mkv#t=0", "b.mkv#t=1"]
    assert len(set(as_images(tmp_path).digests())) == 3
    monkeypatch.setattr(videos, "find_spec", lambda _: None)
    with pytest.warns(LabelwiseWarning, match=r"1 videos .*labelwise\[video\]"):
        assert [Path(one).name for one in as_images(tmp_path).ids] == ["a.png"]
    with pytest.raises(UnsupportedError, match=r"labelwise\[video\]"):
        as_images(tmp_path / "in" / "b.mkv")
