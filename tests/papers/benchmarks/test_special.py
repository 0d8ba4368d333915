import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import savemat

from labelwise_papers.benchmarks import list_benchmarks, load_benchmark
from labelwise_papers.benchmarks.special import decode_mulaw
from tests.pixels_of import px


def xlsa17(home: Path, names: tuple[str, ...], size: int = 3) -> None:
    """Four images of each class; two of each seen class are train, two test; the last class is unseen."""
    home.mkdir(parents=True)
    k = len(names)
    labels = np.repeat(np.arange(1, k + 1), 4)[:, None]
    features = np.arange(4 * k, dtype=float)[None].repeat(size, 0)  # feature i of image j is j
    seen, rows = np.arange(1, 4 * k - 3), np.arange(1, 4 * k + 1)
    savemat(home / "res101.mat", {"features": features, "labels": labels})
    held = {
        "allclasses_names": np.array([[name] for name in names], dtype=object),
        "trainval_loc": seen[(seen - 1) % 4 < 2][:, None],
        "test_seen_loc": seen[(seen - 1) % 4 >= 2][:, None],
        "test_unseen_loc": rows[-4:, None],
    }
    savemat(home / "att_splits.mat", held | {"att": np.arange(2.0 * k).reshape(2, k)})
    savemat(home / "sent_splits.mat", held | {"att": 100 + np.arange(5.0 * k).reshape(5, k)})


def sound(file: Path, value: float, rate: int = 8000, seconds: float = 1.0) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(file), "wb") as made:
        made.setnchannels(1)
        made.setsampwidth(2)
        made.setframerate(rate)
        made.writeframes(np.full(round(rate * seconds), value * 2**15, "<i2").tobytes())


def middles(images: torch.Tensor) -> list[float]:
    return [round(float(row[len(row) // 2]), 3) for row in images]


@pytest.mark.parametrize("folder", ["xlsa17/data/AWA2", "xlsa17/xlsa17/data/AWA2", "xlsa17/AWA2"])
def test_xlsa17_features_are_found_and_their_names_tidied(folder: str, tmp_path: Path) -> None:
    xlsa17(tmp_path / folder, ("polar+bear", "ox", "rat", "cow", "pig", "elk", "fox", "bat", "giant+panda"))
    data = load_benchmark("awa2", root=tmp_path)
    assert (data.name, data.labels.names[0], data.labels.names[-1]) == ("awa2", "polar bear", "giant panda")
    train, val, test = (data.split(name) for name in ("train", "val", "test"))
    assert (len(train), len(val), len(test)) == (12, 4, 16 + 4)
    for split in (train, val, test):  # a feature is the number of its image, and each class has four
        assert (px(split)[:, 0] // 4).long().tolist() == split.targets.tolist()
    assert set(train.targets.tolist()).isdisjoint(val.targets.tolist())
    assert data.labels.vectors is not None
    assert data.labels.vectors[3].tolist() == [3.0, 9 + 3.0]


def test_cub_features_with_sentence_vectors(tmp_path: Path) -> None:
    xlsa17(tmp_path / "xlsa17/data/CUB", tuple(f"{i:03d}.Bird_{i}" for i in range(1, 6)))
    assert load_benchmark("cub", root=tmp_path).labels.names[0] == "Bird 1"
    vectors = load_benchmark("cub", root=tmp_path, protocol="sentences").labels.vectors
    assert vectors is not None
    assert vectors[1].tolist() == [101.0, 106.0, 111.0, 116.0, 121.0]


def test_audiomnist_by_speaker_and_by_digit(tmp_path: Path) -> None:
    for speaker in (1, 40, 41):
        for digit in (0, 7):
            sound(
                tmp_path / f"audiomnist/data/{speaker:02d}/{digit}_{speaker:02d}_3.wav",
                (speaker + digit) / 100,
                48_000,
                0.5,
            )
    (tmp_path / "audiomnist/data/01/8_01_0.wav").write_bytes(b"junk")
    data = load_benchmark("audiomnist", root=tmp_path)
    assert data.labels.names == ("speaker 01", "speaker 40", "speaker 41")
    assert data.shape == (8000,)
    assert middles(px(data.split("train"))) == [0.01, 0.08, 0.4, 0.47]
    assert data.split("train").targets.tolist() == [0, 0, 1, 1]
    assert (middles(px(data.split("test"))), data.split("test").targets.tolist()) == ([0.41, 0.48], [2, 2])
    assert [Path(each.file).name for each in data.skipped] == ["8_01_0.wav"]
    digits = load_benchmark("audiomnist", root=tmp_path, protocol="digits", size=4000)
    assert digits.shape == (4000,)
    assert digits.split("train").targets.tolist() == [0, 7, 0, 7]
    assert digits.split("test").groups == ("speaker 41", "speaker 41")


def test_the_audiomnist_pack_is_decoded(tmp_path: Path) -> None:
    clips = [np.full(9000, 200, np.uint8), np.full(100, 60, np.uint8)]
    np.savez(
        tmp_path / "audiomnist_8k_mulaw.npz",
        data=np.concatenate(clips),
        offsets=np.array([0, 9000, 9100]),
        speaker=np.array([2, 50], np.uint8),
        digit=np.array([5, 6], np.uint8),
        gain=np.array([2.0, 4.0], np.float32),
        rate=np.int32(8000),
    )
    data = load_benchmark("audiomnist", root=tmp_path)
    assert np.array_equal(px(data.split("train"))[0], decode_mulaw(clips[0], 2.0)[:8000])
    short = px(data.split("test"))[0]
    assert np.array_equal(short[3950:4050], decode_mulaw(clips[1], 4.0))
    assert not short[:3950].any()
    assert load_benchmark("audiomnist", root=tmp_path, protocol="digits").split("test").targets.tolist() == [6]


def test_voxceleb_tests_on_its_forty_speakers(tmp_path: Path) -> None:
    for i, speaker in enumerate(("id10001", "id10269", "id10270", "id10309", "id10310")):
        sound(tmp_path / f"voxceleb1/wav/{speaker}/video/00001.wav", i / 10, 16_000, 2.5)
    data = load_benchmark("voxceleb1", root=tmp_path)
    assert data.shape == (32_000,)
    assert (middles(px(data.split("train"))), middles(px(data.split("test")))) == ([0.0, 0.1, 0.4], [0.2, 0.3])
    assert data.split("test").files == ("id10270/video/00001.wav", "id10309/video/00001.wav")
    assert [row["name"] for row in list_benchmarks(tmp_path) if row["found"]] == ["voxceleb1"]


def test_mulaw_is_decoded_as_its_formula_says() -> None:
    data = np.arange(256, dtype=np.uint8)
    for u, found in zip(data.tolist(), decode_mulaw(data, 4.0).tolist(), strict=True):
        v = u / 255 * 2 - 1
        assert found == pytest.approx(np.sign(v) * (256 ** abs(v) - 1) / 255 / 4, rel=1e-6)
