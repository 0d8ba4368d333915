"""Answers in the tables of camera traps: Camtrap DP packages and imports of Timelapse."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from labelwise import __version__
from labelwise.cli.options import shared
from labelwise.cli.output import note
from labelwise.cli.sorting import NONE, UNKNOWN, UNSURE
from labelwise.support.errors import UsageError
from labelwise.support.writable import check_writable

if TYPE_CHECKING:
    from labelwise.cli.classify import Answer, Answers
    from labelwise.images.formats.annotations import Record
    from labelwise.images.formats.camtrap_out import Observation
    from labelwise.tasks.joined import Joined

Form = Literal["camtrap-dp", "timelapse"]
FILES = {"datapackage.json", "deployments.csv", "media.csv", "observations.csv"}


def check_form(form: Form, out: Path | None, paths: Sequence[Path]) -> None:
    """Raise an error unless answers about these paths can be written in a form."""
    from labelwise.images.formats.camtrap import is_camtrap

    if out is None:
        raise UsageError("--format needs --out: a folder for camtrap-dp, a .csv file for timelapse.")
    if form == "timelapse":
        if out.suffix.lower() != ".csv":
            raise UsageError(f"--format timelapse writes a .csv file; given --out {out}.")
    elif out.exists():
        if not out.is_dir() or set(os.listdir(out)) - FILES or any(out.resolve() == path.resolve() for path in paths):
            raise UsageError(f'"{out}" exists and is not a package of answers. Choose another --out.')
        if not shared().overwrite:
            raise UsageError(f'"{out}" already holds answers. Choose another --out, or replace it with --overwrite.')
    packages = [path for path in paths if form == "camtrap-dp" and is_camtrap(path)]
    if packages and len(paths) > 1:
        raise UsageError(
            "Give a Camtrap DP package alone: its deployments and media are kept. Classify others separately."
        )
    for package in packages:
        if not (package / "deployments.csv").is_file():
            raise UsageError(f'"{package}" has no deployments.csv, which a package needs. Export it again.')
    check_writable(out)


def write_form(
    form: Form, out: Path, paths: Sequence[Path], answers: "Answers", records: Mapping[str, "Record"], model: Path
) -> None:
    """Write answers in a form that ``check_form`` accepted."""
    from labelwise.images.decode.crops import file_of
    from labelwise.images.formats.camtrap import is_camtrap
    from labelwise.images.formats.camtrap_out import Package, write_package
    from labelwise.images.formats.timelapse import write_timelapse

    home, root = _home(paths), shared().root
    if form == "timelapse":
        write_timelapse(out, list(_images(answers.rows, answers.joined, records)), home)
        return
    source = paths[0] if is_camtrap(paths[0]) else None
    about = Package(model=f"{model.name}, labelwise {__version__}", home=home, source=source, root=root)
    images = [file_of(one.file) for one in answers.rows] + [file_of(address) for address in records]
    write_package(out, list(_observations(answers.rows, answers.joined, records)), images, about)
    if source is None:
        note(f'Fill in latitude and longitude of each deployment in "{out / "deployments.csv"}" before you publish it.')


def _home(paths: Sequence[Path]) -> Path:
    """Return the folder that paths of images start at: --data-root, the folder that was given, or the common one."""
    if (root := shared().root) is not None:
        return Path(os.path.abspath(root))
    return Path(os.path.commonpath([os.path.abspath(path if path.is_dir() else path.parent) for path in paths]))


def _images(
    answers: Sequence["Answer"], joined: Sequence["Joined"], records: Mapping[str, "Record"]
) -> Iterator[tuple[str, str, float | None]]:
    """Yield the answer to each whole image: its file, the labels, and the probability of a single one."""
    for one in answers:
        if one.file not in records:
            labels = _labels(one)
            yield one.file, ";".join(label for label, _ in labels), labels[0][1] if len(labels) == 1 else None
    for each in joined:
        if each.level != "event":
            known = each.label not in (UNKNOWN, UNSURE)
            yield each.name, each.label if known else "", each.probability if known else None


def _observations(
    answers: Sequence["Answer"], joined: Sequence["Joined"], records: Mapping[str, "Record"]
) -> Iterator["Observation"]:
    from labelwise.images.decode.crops import file_of, parse_crop
    from labelwise.images.formats.camtrap_out import Observation
    from labelwise.tasks.joined import EMPTY

    groups = {file_of(address): record.group for address, record in records.items()}
    for one in answers:
        part = parse_crop(one.file)
        if part is None or part.box:  # frames of a video are one observation
            yield Observation(place=one.file, labels=_labels(one), event=groups.get(file_of(one.file), ""))
    for address, record in records.items():
        if record.detected:
            yield Observation(place=address, labels=((record.detected, record.confidence),), event=record.group)
    for each in joined:
        labels = () if each.label in (UNKNOWN, UNSURE) else ((each.label, each.probability),)
        if each.level == "event":
            yield Observation(place=each.name, labels=labels, event=each.name, of_event=True)
        elif each.label == EMPTY or (each.level == "video" and not each.boxes):
            yield Observation(place=each.name, labels=labels, event=groups[each.name])


def _labels(one: "Answer") -> tuple[tuple[str, float | None], ...]:
    """Return the labels of an answer with their probabilities; none where it is unknown or unsure."""
    if one.word in (UNKNOWN, UNSURE, NONE):
        return ()
    probabilities = dict(one.prediction.top)
    if one.prediction.parents is not None:
        probabilities[one.word] = one.prediction.probability
    return tuple((label, probabilities.get(label)) for label in one.prediction.labels)
