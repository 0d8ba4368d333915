"""The verb fit: make a classifier."""

import os
import shutil
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

import labelwise as lw
from labelwise.cli.inputs import open_data, read_names, tell_groups, tell_skipped
from labelwise.cli.options import Data, Group, Out, Resume, Settings, Size, command_line, shared
from labelwise.cli.outcome import next_steps, outcome
from labelwise.cli.output import note, show
from labelwise.support.errors import UsageError
from labelwise.support.settings import of_the_run, pairs_of
from labelwise.train.run_folder import sole_verb, weights_told

if TYPE_CHECKING:
    from labelwise.fitting.choice import FitOptions
    from labelwise.train.method import Method

NAMES_HELP = "Names for unlabelled images: cat,dog or a .txt file."
CORRECTIONS_HELP = "A table of images and the labels they should have."
ENCODER_HELP = "auto, none (train from scratch), a name, or a file."
PRIOR_HELP = "data, equal, or a table of label and share."
COSTS_HELP = "A table of label and cost of missing it."
HOLD_OUT_HELP = "Share of the images to keep for a test, such as 0.2."
MINUTES_HELP = "With --tune: most minutes of training; default 10."
PRECISION_HELP = "int8: a faster, slightly less exact encoder."
TUNE_HELP = "Train the encoder further; kept only if it helps."


def fit(  # noqa: PLR0913 - the options of the verb
    data: Data,
    out_folder: Out,
    method: Annotated[str, Option(help="auto, or a method, see below.")] = "auto",
    set_: Settings = None,
    encoder: Annotated[str, Option(help=ENCODER_HELP)] = "auto",
    names: Annotated[str | None, Option(help=NAMES_HELP)] = None,
    group: Group = None,
    corrections: Annotated[Path | None, Option(help=CORRECTIONS_HELP)] = None,
    prior: Annotated[str | None, Option(help=PRIOR_HELP)] = None,
    costs: Annotated[Path | None, Option(help=COSTS_HELP)] = None,
    precision: Annotated[Literal["float32", "int8"] | None, Option(help=PRECISION_HELP)] = None,
    tune: Annotated[bool, Option("--tune", help=TUNE_HELP)] = False,
    minutes: Annotated[float | None, Option(min=0, help=MINUTES_HELP)] = None,
    size: Size = None,
    hold_out: Annotated[float | None, Option(help=HOLD_OUT_HELP)] = None,
    resume: Resume = False,
) -> None:
    """Train and calibrate a classifier, and save it."""
    words, common = list(set_ or []), shared()
    from labelwise.core.store import check_free, check_savable, save
    from labelwise.fitting import division
    from labelwise.fitting.choice import next_frame
    from labelwise.fitting.fit import fit as train
    from labelwise.images.sources.folders import unsorted_data
    from labelwise.support.processes import is_main_process, is_restarted

    check_free(out_folder, common.overwrite)
    resume = resume or is_restarted()
    folder = out_folder.with_name(out_folder.name + ".run")
    words += ["tune={}"] if tune else []
    words += [] if minutes is None else [f"tune.minutes={minutes}"]
    words += [
        f"{key}={value}"
        for key, value in (("prior", prior), ("costs", costs), ("precision", precision))
        if value is not None
    ]
    if names is not None and _by_words(method, encoder, words):
        _fit_words(data, out_folder, names, words if encoder == "auto" else [*words, f"encoder={encoder}"])
        return
    engine, accumulate = of_the_run(words)
    options = _options(method if names is None else _method_of_names(method), encoder, words)
    with sole_verb(out_folder, folder, resume=resume), _processes(common.device):
        side = _side(options, size)
        if names is None:
            frame = None if size else next_frame(options)
            dataset = open_data(data, side, size=size, group=group, next_frame=frame)
            dataset = _corrected(dataset, corrections)
            if hold_out is not None:
                dataset = division.hold_out(dataset, hold_out, common.seed)
        elif hold_out is not None:
            raise UsageError("With --names no image has a label, so no test is possible. Leave out --hold-out.")
        else:
            dataset = unsorted_data(Path(data), read_names(names), size, common.strict)
        dataset, chosen = _method(dataset, options)
        check_savable(chosen, dataset.labels, dataset.name)
        tell = note if is_main_process() else None
        run = lw.Run(
            seed=common.seed,
            device=common.device,
            engine=engine,
            accumulate=accumulate,
            folder=folder,
            resume=resume,
            progress=common.progress,
            tell=tell,
        )
        with weights_told(folder):
            classifier = train(dataset, chosen, run)
        if not is_main_process():
            return
        document = {"model": str(out_folder), "labels": list(classifier.labels.names), **classifier.origin.summary}
        about = {**classifier.origin.summary, "command": command_line()}
        classifier = replace(classifier, origin=replace(classifier.origin, summary=about))
        with weights_told(folder, trained=True):
            save(classifier, out_folder, overwrite=common.overwrite, log=folder / "log.jsonl")
        shutil.rmtree(folder, ignore_errors=True)
    again = [*_words("--splits", common.splits), *_words("--data-root", common.root)]
    left_out = "leave_one_out" in document and not document.get("labels_by")
    measurable = not names and (left_out or len(dataset.splits.get("test", ())))
    lines = [
        *outcome(classifier, out_folder, dataset.home),
        *next_steps(dataset, out_folder, [data, *again] if measurable else None),
    ]
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

    common = shared()
    if common.splits is not None:
        raise UsageError("With --names all images are used and there is no split. Leave out --splits.")
    options = WordsOptions.of(pairs_of(words))
    dataset = unsorted_data(Path(data), read_names(names), None, common.strict)
    classifier = fit_words(dataset, options, lw.Run(seed=common.seed, tell=note))
    about = {**classifier.origin.summary, "command": command_line()}
    save(replace(classifier, origin=replace(classifier.origin, summary=about)), out_folder, overwrite=common.overwrite)
    document = {"model": str(out_folder), "labels": list(classifier.labels.names), **about}
    show(document, *outcome(classifier, out_folder, dataset.home), *next_steps(dataset, out_folder, None))


def _corrected(dataset: "lw.data.Dataset", table: Path | None) -> "lw.data.Dataset":
    """Return the data with the labels of a corrections table applied."""
    if table is None:
        return dataset
    from labelwise.images.corrections import correct, read_corrections

    dataset, changed, added = correct(dataset, read_corrections(table))
    note(f"Corrections: {changed} labels changed, {added} images added.")
    return dataset


def _processes(device: str) -> AbstractContextManager[object]:
    """Join the process group if torchrun started this process."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        return nullcontext()
    from labelwise.train.distribution import choose_device, process_group

    return process_group(choose_device(device))


def _words(option: str, value: Path | None) -> list[str]:
    return [] if value is None else [option, str(value)]


def _options(method: str, encoder: str, words: list[str]) -> "FitOptions":
    """Return the fit options that the command line asks for."""
    from labelwise.fitting.choice import FitOptions

    return FitOptions(method=method, encoder=encoder, settings=pairs_of(words))


def _side(options: "FitOptions", size: int | None) -> int | None:
    """Return the size at which packs and benchmarks are read; None is their own size.

    Raises an error for invalid settings and missing weights before any image is read.
    """
    from labelwise.fitting.choice import check_options

    encoder, view = check_options(options, size)
    return encoder.side(view)


def _method(data: "lw.data.Dataset", options: "FitOptions") -> tuple["lw.data.Dataset", "Method"]:
    """Return the data and the method to train; the main process prints the choice and the data."""
    from labelwise.fitting.choice import decide, shape_for
    from labelwise.fitting.division import train_on_all
    from labelwise.support.processes import is_main_process

    decision = decide(data, options)
    data = train_on_all(data, decision.method)
    if is_main_process():
        for reason in decision.reasons:
            note(reason)
        counts = ", ".join(f"{len(split)} {name}" for name, split in data.splits.items())
        about = f"{len(data.labels)} labels, images {counts}, shape {list(shape_for(decision.method, data))}; method {decision.method.name}"
        note(f"{data.name}: {about}")
        tell_groups(data)
        tell_skipped(data.skipped)
    return data, decision.method


def _method_of_names(method: str) -> str:
    """Return a method for unlabelled images; raise an error for a method that needs labels."""
    from labelwise.methods.registry import method_class

    if method != "auto" and method_class(method)().uses_targets:
        raise UsageError(
            f"Method {method} needs labelled images, but --names is for unlabelled ones. Use --method zero_label."
        )
    if shared().splits is not None:
        raise UsageError("With --names all images are used and there is no split. Leave out --splits.")
    return "zero_label" if method == "auto" else method
