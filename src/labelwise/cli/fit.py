"""The verb fit: make a classifier."""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

import labelwise as lw
from labelwise.cli.inputs import new_run, open_data, read_names, tell_groups, tell_skipped
from labelwise.cli.options import Data, Group, Out, Resume, Settings, Size, command_line, shared_options
from labelwise.cli.outcome import next_steps, outcome
from labelwise.cli.output import note, percent, show
from labelwise.support.errors import DataError, LabelwiseError, UsageError
from labelwise.support.settings import pairs_of
from labelwise.train.run_folder import sole_verb, weights_told

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.fitting.choice import FitOptions
    from labelwise.train.method import Method

NAMES_HELP = "Names for unlabelled images: cat,dog; FILE.txt; '*'."
CORRECTIONS_HELP = "A table of images and the labels they should have."
ENCODER_HELP = "auto, none (train from scratch), a name, or a file."
PRIOR_HELP = "data, equal, or a table of label and share."
COSTS_HELP = "A table of label and cost of missing it."
HOLD_OUT_HELP = "Share of the images to keep for a test, such as 0.2."
MINUTES_HELP = "With --tune: minutes of training; default 10."
PRECISION_HELP = "int8: a faster, slightly less exact encoder."
TUNE_HELP = "Train the encoder further; kept only if it helps."


@dataclass(frozen=True, kw_only=True)
class Training:
    """The method and its training."""

    method: Annotated[str, Option(help="auto, or one of the methods above.")] = "auto"
    set_: Settings = None
    encoder: Annotated[str, Option(help=ENCODER_HELP)] = "auto"
    prior: Annotated[str | None, Option(help=PRIOR_HELP)] = None
    costs: Annotated[Path | None, Option(help=COSTS_HELP)] = None
    precision: Annotated[Literal["float32", "int8"] | None, Option(help=PRECISION_HELP)] = None
    tune: Annotated[bool, Option("--tune", help=TUNE_HELP)] = False
    minutes: Annotated[float | None, Option(min=0, help=MINUTES_HELP)] = None

    @property
    def words(self) -> list[str]:
        """The settings as ``key=value`` words."""
        plain = {"tune.minutes": self.minutes, "prior": self.prior, "costs": self.costs, "precision": self.precision}
        own = [f"{key}={value}" for key, value in plain.items() if value is not None]
        return [*(self.set_ or []), *(["tune={}"] if self.tune else []), *own]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How to read the data."""

    names: Annotated[str | None, Option(help=NAMES_HELP)] = None
    group: Group = None
    corrections: Annotated[Path | None, Option(help=CORRECTIONS_HELP)] = None
    size: Size = None
    hold_out: Annotated[float | None, Option(help=HOLD_OUT_HELP)] = None


def fit(data: Data, out_folder: Out, *, training: Training, reading: Reading, resume: Resume = False) -> None:
    """Train and calibrate a classifier, and save it."""
    from labelwise.core.store import check_free, check_savable, save
    from labelwise.fitting.choice import FitOptions
    from labelwise.fitting.fit import fit as train
    from labelwise.support.processes import is_main_process, is_restarted

    words, common, encoder = training.words, shared_options(), training.encoder
    check_free(out_folder, common.overwrite)
    if reading.names is not None and _by_words(training.method, encoder, words):
        words += [] if encoder == "auto" else [f"encoder={encoder}"]
        _fit_words(data, out_folder, reading.names, words)
        return
    folder = out_folder.with_name(out_folder.name + ".run")
    run = new_run(words, folder, resume=resume or is_restarted())
    method = training.method if reading.names is None else _method_of_names(training.method)
    options = FitOptions(method=method, encoder=encoder, settings=pairs_of(words))
    with sole_verb(out_folder, folder, resume=run.resume), _processes(common.device):
        dataset, decision = _method(_read(data, reading, options), options)
        check_savable(decision, dataset.labels, dataset.name)
        with weights_told(folder), _groups_offered(data, reading.names):
            classifier = train(dataset, decision, run)
        if not is_main_process():
            return
        with weights_told(folder, trained=True):
            save(_with_command(classifier), out_folder, overwrite=common.overwrite, log=folder / "log.jsonl")
        shutil.rmtree(folder, ignore_errors=True)
    summary = classifier.origin.summary
    is_left_out = "leave_one_out" in summary and not summary.get("labels_by")
    is_held_out = len(dataset.splits.get("test", ())) and (dataset.own_splits or "tuning" not in summary)
    measurable = reading.names is None and (is_left_out or is_held_out)
    command = [data, *_words("--splits", common.splits), *_words("--data-root", common.root)]
    _show(classifier, out_folder, dataset, command if measurable else None)


@contextmanager
def _groups_offered(data: str, names: str | None) -> Iterator[None]:
    """Explain how to name groups manually if names cannot be used."""
    try:
        yield
    except DataError as error:
        if names is None:
            raise
        way = shlex.join(["labelwise", "group", data, "--out", "groups"])
        raise DataError(f"{error} Or name groups of similar images yourself: {way}") from None


def _read(data: str, reading: Reading, options: "FitOptions") -> "lw.data.Dataset":
    """Return the data to train on, after a check of the options."""
    from labelwise.fitting.choice import check_options, next_frame
    from labelwise.fitting.division import hold_out
    from labelwise.images.sources.folders import unsorted_data

    encoder, view = check_options(options, reading.size)
    side = encoder.side(view)  # of packs and benchmarks; None is their own
    if reading.names is not None:
        if reading.hold_out is not None:
            raise UsageError("With --names no image has a label, so no test is possible. Leave out --hold-out.")
        return unsorted_data(Path(data), read_names(reading.names), reading.size, shared_options().strict)
    frame = None if reading.size else next_frame(options)
    dataset = open_data(data, side, size=reading.size, group=reading.group, next_frame=frame)
    dataset = _corrected(dataset, reading.corrections)
    return dataset if reading.hold_out is None else hold_out(dataset, reading.hold_out, shared_options().seed)


def _with_command(classifier: "Classifier") -> "Classifier":
    """Return the classifier with the command that made it."""
    summary = {**classifier.origin.summary, "command": command_line()}
    return replace(classifier, origin=replace(classifier.origin, summary=summary))


def _show(classifier: "Classifier", out_folder: Path, dataset: "lw.data.Dataset", source: Sequence[str] | None) -> None:
    """Show the classifier and commands to try next; ``source`` names the data to measure on."""
    document = {"model": str(out_folder), "labels": list(classifier.labels.names), **classifier.origin.summary}
    doubts = bool(classifier.origin.summary.get("leave_one_out", {}).get("suspicious")) and dataset.own_images
    lines = [*outcome(classifier, out_folder, dataset.home), *next_steps(dataset, out_folder, source, doubts=doubts)]
    show(document, *lines)


def _by_words(method: str, encoder: str, words: list[str]) -> bool:
    """Return whether to read label names as words: on request, or by default if the encoder has words."""
    from labelwise.fitting.by_words import SETTINGS, words_are_at_hand

    plain = all(word.partition("=")[0] in SETTINGS for word in words)
    return method == "words" or (method == "auto" and plain and words_are_at_hand(encoder))


def _fit_words(data: str, out_folder: Path, names: str, words: list[str]) -> None:
    """Fit from label names alone, and save."""
    from labelwise.core.store import save
    from labelwise.fitting.by_words import WordsOptions, fit_words
    from labelwise.images.sources.folders import unsorted_data
    from labelwise.methods.words.vocabulary import general_words

    common = shared_options()
    if common.splits is not None:
        raise UsageError("With --names all images are used and there is no split. Leave out --splits.")
    options = WordsOptions.of(pairs_of(words))
    names_known = tuple(dict.fromkeys(general_words())) if names.strip() == "*" else read_names(names)
    dataset = unsorted_data(Path(data), names_known, None, common.strict)
    classifier = fit_words(dataset, options, lw.Run(seed=common.seed, tell=note))
    classifier = _with_command(classifier)
    save(classifier, out_folder, overwrite=common.overwrite)
    _show(classifier, out_folder, dataset, None)


def _corrected(dataset: "lw.data.Dataset", table: Path | None) -> "lw.data.Dataset":
    """Return the data with the labels of a corrections table applied."""
    if table is None:
        return dataset
    from labelwise.images.corrections import correct, read_corrections

    dataset, changed_rows, added_rows = correct(dataset, read_corrections(table))
    note(f"Corrections: {changed_rows} labels changed, {added_rows} images added.")
    return dataset


def _processes(device: str) -> AbstractContextManager[object]:
    """Join the process group if torchrun started this process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return nullcontext()
    from labelwise.train.distribution import choose_device, process_group

    return process_group(choose_device(device))


def _words(option: str, value: Path | None) -> list[str]:
    return [] if value is None else [option, str(value)]


def _method(data: "lw.data.Dataset", options: "FitOptions") -> tuple["lw.data.Dataset", "Method"]:
    """Return the data and the method to train; the main process prints the choice and the data."""
    from labelwise.fitting.choice import decide, shape_for
    from labelwise.fitting.division import train_on_all
    from labelwise.support.processes import is_main_process

    decision, full_data = decide(data, options), data
    data = train_on_all(data, decision.method)
    if is_main_process():
        for reason in decision.reasons:
            note(reason)
        counts = ", ".join(f"{len(split)} {name}" for name, split in data.splits.items())
        line = f"{len(data.labels)} labels, images {counts}, shape {list(shape_for(decision.method, data))}; method {decision.method.name}"
        note(f"{data.name}: {line}")
        tell_groups(data)
        tell_skipped(data.skipped)
        if options.method == "auto" and decision.method.zero_shot and data.own_images:
            _tell_closed_form(full_data, options, decision.method.name)
    return data, decision.method


def _tell_closed_form(data: "lw.data.Dataset", options: "FitOptions", decision: str) -> None:
    """Warn what labels with images may lose to labels without, before training on pixels."""
    from labelwise.fitting.choice import CLOSED, decide
    from labelwise.fitting.fit import fit as train

    settings = {key: value for key, value in options.settings.items() if key.partition(".")[0] in ("encoder", "view")}
    try:
        method = decide(data, replace(options, method=CLOSED, settings=settings)).method
        summary = train(
            data, method, lw.Run(seed=shared_options().seed, device=shared_options().device, progress=False)
        ).origin.summary
    except LabelwiseError:
        return
    if "leave_one_out" in summary:
        accuracy = percent(summary["leave_one_out"]["accuracy"])
        note(
            f"Method {CLOSED} classifies {accuracy} of the labelled images correctly (leave-one-out). Method {decision} may lose some of "
            f'this for the sake of labels without images: compare "seen" below. To keep it: --method {CLOSED}'
        )


def _method_of_names(method: str) -> str:
    """Return a method for unlabelled images; raise an error for a method that needs labels."""
    from labelwise.methods.registry import method_class

    if method != "auto" and method_class(method)().uses_targets:
        raise UsageError(
            f"Method {method} needs labelled images, but --names is for unlabelled ones. Use --method zero_label."
        )
    if shared_options().splits is not None:
        raise UsageError("With --names all images are used and there is no split. Leave out --splits.")
    return "zero_label" if method == "auto" else method
