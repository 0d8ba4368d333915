"""Sound: WAV files as waveforms, and folders of them as a data set of waveforms ``[n, samples]``.

A method sees waveforms as features; ``labelwise_papers.sound.spectrogram.Spectrogram`` makes images of them on the device.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from math import gcd
from pathlib import Path

import numpy as np
import numpy.typing as npt

from labelwise.images.dataset import Dataset
from labelwise.images.describe.knowledge import find_knowledge
from labelwise.images.images import FeatureRows, Skipped
from labelwise.images.sources.build import build
from labelwise.images.sources.folders import labelled_files, list_tops
from labelwise.images.sources.paths import list_files
from labelwise.support.errors import DataError, UsageError, listing
from labelwise.support.files import check_size, read_regular

Floats = npt.NDArray[np.float32]

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_RATES = (100, 1_000_000)
_MOST_TIMES = 16  # as much memory as a file of bytes takes while it is read
_FILTER_BYTES = 800  # while the filter is made that resamples: 20 numbers for each step of the larger rate, five times
_CODECS = {2: "ADPCM", 6: "A-law", 7: "mu-law", 17: "IMA ADPCM", 80: "MPEG", 85: "MP3"}


def read_wav(path: str | Path) -> tuple[Floats, int]:
    """Return the sound of a WAV file ``[channels, t]`` in [-1, 1] (float32) and its samples per second.

    Whole numbers of 8, 16, 24 and 32 bits and floats of 32 and 64 bits are read; full scale is 1.
    """
    file = Path(path)
    try:
        check_size(file, _MOST_TIMES * file.stat().st_size)
        content = read_regular(file)
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror}. Check the path and its rights.') from None
    try:
        return _parse(content)
    except UsageError as fault:
        raise DataError(f'Cannot read "{file}": {fault}') from None


def resample(waveforms: Floats, rate: int, wanted: int) -> Floats:
    """Return waveforms ``[..., t]`` at another number of samples per second, filtered so that nothing is folded."""
    for each in (rate, wanted):
        if not _RATES[0] <= each <= _RATES[1]:
            raise UsageError(f"The rate must lie in {_RATES[0]} to {_RATES[1]} samples per second; given {each}.")
    if rate == wanted:
        return waveforms
    from scipy.signal import resample_poly

    common = gcd(rate, wanted)
    up, down = wanted // common, rate // common
    size = 16 * waveforms.size * max(1.0, wanted / rate) + _FILTER_BYTES * max(up, down)
    check_size(f"a sound of {rate} samples per second", size)
    values = resample_poly(waveforms.astype(np.float64), up, down, axis=-1)
    return np.asarray(values.astype(waveforms.dtype))


def fit_length(waveforms: Floats, samples: int) -> Floats:
    """Return waveforms ``[..., samples]``: the middle of longer ones; silence on both sides of shorter ones."""
    if samples < 1:
        raise UsageError(f"A waveform needs at least one sample; given {samples}.")
    spare = waveforms.shape[-1] - samples
    if spare >= 0:
        return waveforms[..., spare // 2 : spare // 2 + samples]
    before = -spare // 2
    return np.pad(waveforms, [(0, 0)] * (waveforms.ndim - 1) + [(before, -spare - before)])


def audio_folder(
    path: str | Path, *, rate: int = 16_000, seconds: float = 1.0, seed: int = 0, strict: bool = False
) -> Dataset:
    """Return the WAV files of a folder that has one sub-folder for each label, such as a speaker: ``voices/anna/1.wav``.

    The sub-folders may also be in ``train``, ``val`` and ``test``. Each sound becomes mono (the mean of its
    channels), is resampled to ``rate`` samples per second, and cut or filled with silence to one length: ``[n, rate *
    seconds]``, float32 in [-1, 1]. A file that cannot be read is left out and listed in ``skipped``, or an error
    where ``strict``.
    """
    root, samples = Path(path), round(rate * seconds)
    if samples < 1:
        raise UsageError(f"Sounds need a length above 0; given {seconds} seconds at {rate} samples per second.")
    rows, _ = labelled_files(list_tops(root), list_wavs)
    sounds, readable, skipped = read_sounds([Path(file) for file in rows.files], rate, samples)
    if not readable or (strict and skipped):
        faults = " ".join(each.reason for each in skipped[:3])
        raise DataError(f'{len(skipped)} of {len(rows)} sounds of "{root}" cannot be read. {faults}'.strip())
    rows = replace(rows.select(readable).without_absent(), images=FeatureRows(sounds), skipped=skipped)
    return build(root.resolve().name, rows, find_knowledge(root), seed=seed)


def read_sounds(files: Sequence[Path], rate: int, samples: int) -> tuple[Floats, list[int], tuple[Skipped, ...]]:
    """Return mono sounds ``[n, samples]``, which of the files they are, and those that could not be read."""
    check_size(f"{len(files)} sounds", 4 * len(files) * samples)
    sounds = np.empty((len(files), samples), np.float32)
    readable: list[int] = []
    skipped: list[Skipped] = []
    for i, file in enumerate(files):
        try:
            sound, own = read_wav(file)
            sounds[len(readable)] = fit_length(resample(sound.mean(0), own, rate), samples)
        except DataError as fault:
            skipped.append(Skipped(file=str(file), reason=str(fault)))
            continue
        readable.append(i)
    return sounds[: len(readable)], readable, tuple(skipped)


def list_wavs(folder: Path) -> list[Path]:
    """Return the WAV files in a folder and the folders below it, sorted; hidden files and folders are left out."""
    return list_files(folder, lambda name: name.lower().endswith((".wav", ".wave")))


def _parse(content: bytes) -> tuple[Floats, int]:
    if content[:4] != b"RIFF" or content[8:12] != b"WAVE":
        raise UsageError(f"{'it is not a WAV file' if content else 'it is empty'}. Convert it to WAV (PCM).")
    kind, channels, rate, bits, data = 0, 0, 0, 0, None
    at = 12
    while at + 8 <= len(content) and data is None:
        name, size = content[at : at + 4], struct.unpack_from("<I", content, at + 4)[0]
        body = content[at + 8 : at + 8 + size]
        if name == b"fmt " and len(body) >= 16:
            kind, channels, rate, _, _, bits = struct.unpack_from("<HHIIHH", body)
            if kind == _EXTENSIBLE and len(body) >= 26:
                kind = struct.unpack_from("<H", body, 24)[0]
        elif name == b"data":
            data = body
        at += 8 + size + size % 2
    if not kind or data is None:
        raise UsageError(f"it has no {'sound' if kind else 'format'} chunk; it may be cut off. Write it again.")
    if not channels or not _RATES[0] <= rate <= _RATES[1]:
        raise UsageError(f"it has {channels} channels and {rate} samples per second, which cannot be right.")
    values = _values(data, kind, bits)
    values = values[: len(values) // channels * channels].reshape(-1, channels)
    if not len(values):
        raise UsageError("it has no samples. Remove it.")
    if not np.isfinite(values).all():
        raise UsageError("it holds a sample that is not a finite number (NaN or infinity). Write it again.")
    return np.ascontiguousarray(values.T), rate


def _values(data: bytes, kind: int, bits: int) -> Floats:
    """Return samples in [-1, 1] from the bytes of a WAV file; a cut-off last sample is left out."""
    if (kind, bits) not in ((_PCM, 8), (_PCM, 16), (_PCM, 24), (_PCM, 32), (_FLOAT, 32), (_FLOAT, 64)):
        coded = {_PCM: "whole numbers", _FLOAT: "floats"}.get(kind) or _CODECS.get(kind, f"format {kind}")
        known = listing(("8, 16, 24 or 32 bit whole numbers", "32 or 64 bit floats"))
        raise UsageError(f"its samples are {coded} of {bits} bits; read are {known}. Convert it to 16 bit PCM.")
    width = bits // 8
    samples = np.frombuffer(data[: len(data) // width * width], np.uint8).reshape(-1, width)
    if kind == _FLOAT:
        with np.errstate(over="ignore"):
            return samples.view(f"<f{width}")[:, 0].astype(np.float32)
    wide = np.zeros((len(samples), 4), np.uint8)  # the sample is the upper bytes of a number of 32 bits
    wide[:, 4 - width :] = samples ^ 128 if width == 1 else samples  # bytes alone have no sign: 128 is silence
    return (wide.view("<i4")[:, 0] / 2**31).astype(np.float32)
