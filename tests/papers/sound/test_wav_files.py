import struct
import wave
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.signal import resample_poly

from labelwise.support.errors import DataError, UsageError
from labelwise_papers.sound.wav_files import audio_folder, fit_length, read_wav, resample
from tests.images.samples import sizes
from tests.pixels_of import px


def riff(kind: int, bits: int, data: bytes, rate: int = 8000, channels: int = 1, before: bytes = b"") -> bytes:
    form = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    body = b"WAVE" + before + b"fmt " + struct.pack("<I", 16) + form + b"data" + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body


def written(root: Path, content: bytes) -> Path:
    (root / "a.wav").write_bytes(content)
    return root / "a.wav"


def whole(bits: int, value: int) -> bytes:
    return bytes([value + 128]) if bits == 8 else value.to_bytes(bits // 8, "little", signed=True)


@given(st.sampled_from([8, 16, 24, 32]), st.integers(1, 3), st.integers(8000, 48000), st.data())
def test_whole_numbers_of_every_width(
    tmp_path_factory: pytest.TempPathFactory, bits: int, channels: int, rate: int, data: st.DataObject
) -> None:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    frames = data.draw(st.lists(st.tuples(*[st.integers(low, high)] * channels), min_size=1, max_size=20))
    path = tmp_path_factory.mktemp("wav") / "a.wav"
    with wave.open(str(path), "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(bits // 8)
        out.setframerate(rate)
        out.writeframes(b"".join(whole(bits, value) for frame in frames for value in frame))
    sound, found = read_wav(path)
    assert found == rate
    assert sound.shape == (channels, len(frames))
    expected = np.array(frames, np.float64).T / 2 ** (bits - 1)
    assert np.array_equal(sound, expected.astype(np.float32))


@pytest.mark.parametrize(("kind", "bits"), [("<f4", 32), ("<f8", 64)])
def test_floats_and_other_chunks(tmp_path: Path, kind: str, bits: int) -> None:
    values = np.array([0.5, -0.25, 1.0, 0.0], kind)
    other = b"LIST" + struct.pack("<I", 3) + b"abc\0"  # an odd chunk is padded
    sound, _ = read_wav(written(tmp_path, riff(3, bits, values.tobytes(), channels=2, before=other)))
    assert sound.tolist() == [[0.5, 1.0], [-0.25, 0.0]]


def test_the_extensible_form_is_read(tmp_path: Path) -> None:
    form = struct.pack("<HHIIHHHHIH", 0xFFFE, 1, 8000, 16000, 2, 16, 22, 16, 0, 1) + bytes(14)
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form + b"data" + struct.pack("<Ih", 2, -(2**14))
    sound, _ = read_wav(written(tmp_path, b"RIFF" + struct.pack("<I", len(body)) + body))
    assert sound.tolist() == [[-0.5]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty. Convert it to WAV"),
        (b"ID3 an mp3 file", "it is not a WAV file"),
        (riff(1, 16, b"ab")[:30], "it has no format chunk; it may be cut off"),
        (riff(1, 16, b"ab")[:36], "it has no sound chunk; it may be cut off"),
        (riff(1, 16, b""), "it has no samples"),
        (riff(1, 12, b"abcd"), "samples are whole numbers of 12 bits; read are 8, 16, 24 or 32 bit"),
        (riff(7, 8, b"abcd"), "samples are mu-law of 8 bits"),
        (riff(85, 0, b"abcd"), "samples are MP3 of 0 bits"),
        (riff(99, 16, b"abcd"), "samples are format 99 of 16 bits"),
        (riff(1, 16, b"abcd", rate=0), "1 channels and 0 samples per second, which cannot be right"),
        (riff(1, 16, b"abcd", channels=0), "0 channels and 8000 samples per second"),
        (riff(3, 32, struct.pack("<f", float("nan"))), "a sample that is not a finite number"),
    ],
    ids=["empty", "mp3", "no format", "no sound", "none", "12", "mulaw", "mpeg", "99", "rate", "channels", "nan"],
)
def test_files_that_cannot_be_read_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_wav(written(tmp_path, content))


@given(st.integers(0, 60), st.binary(max_size=12))
def test_damaged_files_never_give_another_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, junk: bytes
) -> None:
    content = riff(1, 16, b"abcdefgh")
    path = tmp_path_factory.getbasetemp() / "damaged.wav"
    path.write_bytes(content[:place] + junk + content[place + len(junk) :])
    try:
        sound, _ = read_wav(path)
    except DataError:
        return
    assert np.isfinite(sound).all()


def test_resampling_keeps_a_tone() -> None:
    tone = np.sin(2 * np.pi * 440 * np.arange(44100) / 44100).astype(np.float32)[None]
    found = resample(tone, 44100, 8000)
    assert found.shape == (1, 8000)
    expected = np.sin(2 * np.pi * 440 * np.arange(8000) / 8000)
    assert np.abs(found[0, 200:-200] - expected[200:-200]).max() < 2e-3
    assert np.allclose(found[0], resample_poly(tone[0].astype(np.float64), 80, 441), atol=1e-6)
    assert resample(tone, 8000, 8000) is tone
    with pytest.raises(UsageError, match=r"The rate must lie in 100 to 1000000 samples per second; given 7"):
        resample(tone, 7, 8000)


@given(st.integers(1, 20), st.integers(1, 20))
def test_lengths_are_fitted_in_the_middle(t: int, samples: int) -> None:
    sound = np.arange(1, t + 1, dtype=np.float32)[None]
    found = fit_length(sound, samples)[0].astype(int).tolist()
    assert len(found) == samples
    kept = [value for value in found if value]
    assert kept == list(range(kept[0], kept[0] + min(t, samples)))
    before, after = (kept[0] - 1, t - kept[-1]) if t >= samples else (found.index(1), samples - t - found.index(1))
    assert 0 <= after - before <= 1


def speakers(root: Path, rate: int = 8000) -> Path:
    for i, name in enumerate(("anna", "été")):
        (root / name).mkdir(parents=True)
        for j in range(10):
            tone = (2000 * np.sin(np.arange(400 + j) * (i + 1) / 3)).astype("<i2")
            (root / name / f"{j}.wav").write_bytes(riff(1, 16, np.repeat(tone, 2).tobytes(), rate, channels=2))
    return root


def test_a_folder_of_sounds(tmp_path: Path) -> None:
    root = speakers(tmp_path / "voices")
    (root / "anna" / "notes.txt").write_text("no sound")
    (root / "anna" / "bad.wav").write_bytes(b"text")
    data = audio_folder(root, rate=4000, seconds=0.05)
    assert data.labels.names == ("anna", "été")
    assert data.shape == (200,)
    assert sizes(data) == {"train": 14, "val": 2, "test": 4}
    assert [Path(each.file).name for each in data.skipped] == ["bad.wav"]
    for split in data.splits.values():
        for file, image, target in zip(split.files, px(split), split.targets.tolist(), strict=True):
            assert Path(file).parent.name == data.labels.names[target]
            sound, rate = read_wav(file)
            assert np.array_equal(image, fit_length(resample(sound.mean(0), rate, 4000), 200))
    with pytest.raises(DataError, match=r"1 of 21 sounds of .* cannot be read. .*bad.wav.* not a WAV file"):
        audio_folder(root, strict=True)


def test_sounds_in_split_folders(tmp_path: Path) -> None:
    speakers(tmp_path / "train")
    speakers(tmp_path / "test")
    data = audio_folder(tmp_path, rate=8000, seconds=0.1)
    assert sizes(data) == {"train": 18, "val": 2, "test": 20}
    with pytest.raises(UsageError, match=r"Sounds need a length above 0; given 0 seconds"):
        audio_folder(tmp_path, seconds=0)
    (tmp_path / "none" / "a").mkdir(parents=True)
    with pytest.raises(DataError, match=r"0 of 0 sounds of .* cannot be read"):
        audio_folder(tmp_path / "none")
