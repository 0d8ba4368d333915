"""Benchmarks that are no images: features with label vectors (xlsa17), and sound as waveforms ``[n, samples]``."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from labelwise.images.dataset import Dataset
from labelwise.images.images import Array
from labelwise.images.sources.npz_files import read_npz
from labelwise_papers.benchmarks.described import load_described
from labelwise_papers.benchmarks.entries import ENTRIES, Entry
from labelwise_papers.benchmarks.protocols import second_labels
from labelwise_papers.benchmarks.records import Records, tidy
from labelwise_papers.benchmarks.registry import find_official, find_packs
from labelwise_papers.benchmarks.xlsa17 import read_gzsl_pack, read_xlsa17
from labelwise_papers.sound.wav_files import fit_length, read_sounds, resample

SECONDS = {"voxceleb1": 2.0, "audiomnist": 1.0}
_TEST_SPEAKERS = range(10270, 10310)  # of VoxCeleb1
_TRAIN_SPEAKERS = 40  # of AudioMNIST
_VECTORS = ("standard", "sentences")  # the protocols of features whose labels have vectors


def load_features(entry: Entry, root: Path, protocol: str, seed: int) -> Dataset | None:
    """Return features with vectors or sentences of the labels, a third of the seen ones in val; None where not there."""
    splits = "sent_splits.mat" if protocol == "sentences" else "att_splits.mat"
    official = find_official(entry, root)
    if official is not None:
        features = read_xlsa17(official, splits=splits)
    elif find_packs(entry, root) is not None:
        features = read_gzsl_pack(root, entry.name.upper(), splits=splits)
    else:
        return None
    names = tuple(tidy(name).replace("+", " ") for name in features.labels.names)
    if entry.name == "flo" and len(names) == len(ENTRIES["flowers102"].labels):
        names = ENTRIES["flowers102"].labels  # the file has no names; its columns are in this order
    named = replace(features, name=entry.name, labels=replace(features.labels, names=names))
    return named.dataset(seed=seed) if protocol in _VECTORS else load_described(named, root, protocol, seed)


def load_audio(entry: Entry, root: Path, protocol: str, rate: int) -> Dataset | None:
    """Return waveforms ``[n, samples]`` of speakers; None where they are not in the root."""
    samples = round(rate * SECONDS[entry.name])
    official, packed = find_official(entry, root), find_packs(entry, root)
    if official is not None:
        records = _OFFICIAL[entry.name](official, rate, samples)
    elif packed is not None:
        records = _packed_audiomnist(packed, rate, samples)
    else:
        return None
    return (second_labels(records, 0) if protocol == "digits" else records).dataset(entry.name, 0)


def _voxceleb1(home: Path, rate: int, samples: int) -> Records:
    """Return VoxCeleb1 from ``wav/<speaker>/<video>/<clip>.wav``."""
    files = sorted((home / "wav").glob("id*/*/*.wav"))
    sounds, readable, skipped = read_sounds(files, rate, samples)
    paths = [files[i] for i in readable]
    speakers = [path.parent.parent.name for path in paths]
    tested = {f"id{number}" for number in _TEST_SPEAKERS}
    names = sorted(set(speakers))
    position = {name: i for i, name in enumerate(names)}
    return Records(
        names=tuple(names),
        pictures=sounds,
        targets=[position[speaker] for speaker in speakers],
        splits=["test" if speaker in tested else "train" for speaker in speakers],
        files=[path.relative_to(home / "wav").as_posix() for path in paths],
        groups=[f"{path.parent.parent.name}/{path.parent.name}" for path in paths],
        skipped=skipped,
    )


def _audiomnist(home: Path, rate: int, samples: int) -> Records:
    """Return AudioMNIST from ``data/<speaker>/<digit>_<speaker>_<repetition>.wav``."""
    files = sorted((home / "data").glob("[0-9][0-9]/[0-9]_*_*.wav"))
    sounds, readable, skipped = read_sounds(files, rate, samples)
    paths = [files[i] for i in readable]
    speakers, digits = [int(path.parent.name) for path in paths], [int(path.name[0]) for path in paths]
    named = [path.relative_to(home / "data").as_posix() for path in paths]
    return replace(_spoken(sounds, speakers, digits), files=named, skipped=skipped)


def _packed_audiomnist(file: Path, rate: int, samples: int) -> Records:
    """Return AudioMNIST from mu-law bytes, one clip after another."""
    arrays = read_npz(file, "data", "offsets", "speaker", "digit", "gain", "rate")
    data, gains, own = arrays["data"], arrays["gain"].tolist(), int(arrays["rate"].item())
    sounds = np.empty((len(gains), samples), np.float32)
    for i, ((start, end), gain) in enumerate(zip(pairwise(arrays["offsets"].tolist()), gains, strict=True)):
        sounds[i] = fit_length(resample(decode_mulaw(data[start:end], gain), own, rate), samples)
    return _spoken(sounds, arrays["speaker"].tolist(), arrays["digit"].tolist())


def decode_mulaw(data: Array, gain: float = 1.0) -> Array:
    """Return the waveform (float32) of mu-law bytes ``[..., t]``: 0 is -1, 255 is 1, mu is 255; divided by the gain."""
    level = np.arange(256, dtype=np.float64) / 255 * 2 - 1
    table = (np.sign(level) * (256 ** np.abs(level) - 1) / 255).astype(np.float32)
    return np.asarray(table[np.asarray(data, np.int64)] / np.float32(gain))


def _spoken(sounds: Array, speakers: Sequence[int], digits: Sequence[int]) -> Records:
    """Return the records of spoken digits: labels are the speakers, second labels the digits."""
    known = sorted(set(speakers))
    return Records(
        names=tuple(f"speaker {number:02d}" for number in known),
        pictures=sounds,
        targets=[known.index(number) for number in speakers],
        splits=["train" if number <= _TRAIN_SPEAKERS else "test" for number in speakers],
        groups=[f"speaker {number:02d}" for number in speakers],
        other_names=ENTRIES["mnist"].labels,
        other_targets=digits,
    )


_OFFICIAL: dict[str, Callable[[Path, int, int], Records]] = {"voxceleb1": _voxceleb1, "audiomnist": _audiomnist}
