"""Write answers as camera-trap tables: Camtrap DP packages and Timelapse imports."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from labelwise import __version__
from labelwise.cli.options import shared_options
from labelwise.cli.output import note
from labelwise.cli.sorting import NONE, UNKNOWN, UNSURE
from labelwise.support.errors import UsageError, listing
from labelwise.support.writable import check_writable

if TYPE_CHECKING:
    from labelwise.cli.classify import AnswerRow, Answers
    from labelwise.images.formats.annotations import Record
    from labelwise.images.formats.camtrap_out import Observation
    from labelwise.tasks.box_answers import Joined

Form = Literal["camtrap-dp", "timelapse"]
FILES = {"datapackage.json", "deployments.csv", "media.csv", "observations.csv"}


def check_form(form: Form, target: Path | None, paths: Sequence[Path]) -> None:
    """Raise an error unless answers about these paths can be written in this form."""
    from labelwise.images.formats.camtrap import is_camtrap

    if target is None:
        raise UsageError("--format needs --out: a folder for camtrap-dp, a .csv file for timelapse.")
    if form == "timelapse":
        if target.suffix.lower() != ".csv":
            raise UsageError(f"--format timelapse writes a .csv file; given --out {target}.")
    elif target.exists():
        if (
            not target.is_dir()
            or set(os.listdir(target)) - FILES
            or any(target.resolve() == path.resolve() for path in paths)
        ):
            raise UsageError(f'"{target}" exists and is not a package of answers. Choose another --out.')
        if not shared_options().overwrite:
            raise UsageError(f'"{target}" already holds answers. Choose another --out, or replace it with --overwrite.')
    packages = [path for path in paths if form == "camtrap-dp" and is_camtrap(path)]
    if packages and len(paths) > 1:
        raise UsageError(
            "Give a Camtrap DP package alone: its deployments and media are kept. Classify others separately."
        )
    for package in packages:
        if not (package / "deployments.csv").is_file():
            raise UsageError(f'"{package}" has no deployments.csv, which a package needs. Export it again.')
    check_writable(target)


def write_form(
    form: Form, target: Path, paths: Sequence[Path], answers: "Answers", records: Mapping[str, "Record"], model: Path
) -> None:
    """Write answers in a form that ``check_form`` accepted."""
    from labelwise.images.decode.crops import file_of
    from labelwise.images.formats.camtrap import is_camtrap
    from labelwise.images.formats.camtrap_out import Package, write_package
    from labelwise.images.formats.timelapse import write_timelapse

    home, root = _home(paths), shared_options().root
    if form == "timelapse":
        write_timelapse(target, list(_images(answers.rows, answers.joined, records)), home)
        return
    source = paths[0] if is_camtrap(paths[0]) else None
    package = Package(model=f"{model.name}, labelwise {__version__}", home=home, source=source, root=root)
    images = [file_of(row.file) for row in answers.rows] + [file_of(address) for address in records]
    nowhere = write_package(target, list(_observations(answers.rows, answers.joined, records)), images, package)
    if nowhere:
        note(
            f"No position of {listing(nowhere, 3)}: a package needs latitude and longitude of each deployment. Fill them in, in "
            f'"{target / "deployments.csv"}"; or put that table into "{home}" and classify again.'
        )


def _home(paths: Sequence[Path]) -> Path:
    """Return the root of image paths: --data-root, the given folder, or the common one."""
    if (root := shared_options().root) is not None:
        return Path(os.path.abspath(root))
    return Path(os.path.commonpath([os.path.abspath(path if path.is_dir() else path.parent) for path in paths]))


def _images(
    answers: Sequence["AnswerRow"], box_answers: Sequence["Joined"], records: Mapping[str, "Record"]
) -> Iterator[tuple[str, str, float | None]]:
    """Yield the answer to each whole image: its file, the labels, and the probability of a single one."""
    for answer in answers:
        if answer.file not in records:
            labels = _labels(answer)
            yield answer.file, ";".join(label for label, _ in labels), labels[0][1] if len(labels) == 1 else None
    for box_answer in box_answers:
        if box_answer.level != "event":
            is_known = box_answer.label not in (UNKNOWN, UNSURE)
            yield box_answer.name, box_answer.label if is_known else "", box_answer.probability if is_known else None


def _observations(
    answers: Sequence["AnswerRow"], box_answers: Sequence["Joined"], records: Mapping[str, "Record"]
) -> Iterator["Observation"]:
    from labelwise.images.decode.crops import file_of, parse_crop
    from labelwise.images.formats.camtrap_out import Observation
    from labelwise.tasks.box_answers import EMPTY

    groups = {file_of(address): record.group for address, record in records.items()}
    for answer in answers:
        part = parse_crop(answer.file)
        if part is None or part.box:  # frames of a video are one observation
            yield Observation(place=answer.file, labels=_labels(answer), event=groups.get(file_of(answer.file), ""))
    for address, record in records.items():
        if record.detected:
            yield Observation(place=address, labels=((record.detected, record.confidence),), event=record.group)
    for box_answer in box_answers:
        labels = () if box_answer.label in (UNKNOWN, UNSURE) else ((box_answer.label, box_answer.probability),)
        if box_answer.level == "event":
            yield Observation(place=box_answer.name, labels=labels, event=box_answer.name, of_event=True)
        elif box_answer.label == EMPTY or (box_answer.level == "video" and not box_answer.boxes):
            yield Observation(place=box_answer.name, labels=labels, event=groups[box_answer.name])


def _labels(answer: "AnswerRow") -> tuple[tuple[str, float | None], ...]:
    """Return the labels of an answer with their probabilities; none if unknown or unsure."""
    if answer.word in (UNKNOWN, UNSURE, NONE):
        return ()
    probabilities = dict(answer.prediction.top)
    if answer.prediction.parents is not None:
        probabilities[answer.word] = answer.prediction.probability
    return tuple((label, probabilities.get(label)) for label in answer.prediction.labels)
