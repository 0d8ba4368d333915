"""Verbs that make or change a classifier: fit, teach, forget, calibrate, demo."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from labelwise.cli.method_choice import check_size, decided, expected_side, list_settings, wish_of
from labelwise.cli.multilabel import calibration_line
from labelwise.cli.naming import method_of_names, print_naming, read_names, unsorted_data
from labelwise.cli.output import note, out, percent, print_json
from labelwise.cli.picture_verbs import AsJson, Device, Model, ScoreBy, Strict, open_model, read
from labelwise.cli.run_folder import sole_run, weights_told
from labelwise.cli.zero_shot import print_balance, read_vector
from labelwise.errors import UsageError, listing

if TYPE_CHECKING:
    from labelwise.classifier import Classifier
    from labelwise.data import Dataset
    from labelwise.training.stages import Method

DATA_HELP = "A folder of pictures, a .csv table, an .npz pack, or the name of an embedded set (finches, digits)."
METHOD_HELP = "auto, or one of: indicator, prototype, softmax, multilabel, supcon, clarel, eszsl, ridge, devise, izf, cgan, zero_label."
NAMES_HELP = "Pictures have no labels: names of labels (cat,dog or a .txt file of lines), for zero_label."
Data = Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)]
Out = Annotated[Path, typer.Option("--out", help="The folder to write the classifier to.", show_default=False)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a classifier that is already there.")]
Splits = Annotated[Path | None, typer.Option(help="A table that says which picture is in which split; see data split.")]
Root = Annotated[Path | None, typer.Option("--data-root", help="The folder of all benchmarks.")]
Name = Annotated[str, typer.Argument(help="The label.", show_default=False)]


def fit(  # noqa: PLR0913 - the options of the verb
    data: Data,
    out_folder: Out,
    method: Annotated[str, typer.Option(help=METHOD_HELP)] = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the method as key=value; --set help lists them.")
    ] = None,
    encoder: Annotated[
        str,
        typer.Option(
            help="auto, none (as --set says, else trained from scratch), or a pretrained backbone to use as it is."
        ),
    ] = "auto",
    names: Annotated[str | None, typer.Option(help=NAMES_HELP, show_default=False)] = None,
    splits: Splits = None,
    root: Root = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="How often to go through the images.")] = None,
    size: Annotated[int | None, typer.Option(min=8, help="Side in pixels that pictures are brought to.")] = None,
    seed: int = 0,
    device: Device = "auto",
    resume: Annotated[bool, typer.Option("--resume", help="Continue a run that was interrupted.")] = False,
    overwrite: Overwrite = False,
    strict: Strict = False,
    json: AsJson = False,
) -> None:
    """Train on what you know, calibrate, and save a classifier."""
    words = list(set_ or [])
    if "help" in words:
        list_settings(method)
        return
    from labelwise.fitting.fit import fit as run
    from labelwise.store import check_free, check_savable, save
    from labelwise.training.distribution import is_main_process
    from labelwise.training.stages import Run

    check_free(out_folder, overwrite)
    folder = out_folder.with_name(out_folder.name + ".run")
    wish = wish_of(method if names is None else method_of_names(method, splits), encoder, words, epochs)
    with sole_run(out_folder, folder, resume=resume):
        side = size or expected_side(wish, data)
        if names is None:
            dataset = _load(data, side, root, splits, strict)
        else:
            dataset = unsorted_data(Path(data), read_names(names), side, strict)
        check_size(dataset, size)
        dataset = replace(dataset, side_open=dataset.own_pictures and size is None)
        chosen = decided(dataset, wish)
        check_savable(chosen, dataset.labels, dataset.name)
        if is_main_process():
            _describe(dataset, chosen)
        settings = Run(seed=seed, device=device, folder=folder, resume=resume, progress=not json)
        with weights_told(folder):
            classifier = run(dataset, chosen, settings)
        if not is_main_process():
            return
        with weights_told(folder, trained=True):
            save(classifier, out_folder, overwrite=overwrite, log=folder / "log.jsonl")
        shutil.rmtree(folder)
    _tell(classifier, out_folder, json)


def _load(
    data: str, size: int | None, root: Path | None, splits: Path | None = None, strict: bool = False
) -> "Dataset":
    """Return the data that a word names, divided as a table says where one is given."""
    from labelwise.data import apply_split, load

    dataset = load(data, size=size, strict=strict, root=root)
    return apply_split(dataset, splits) if splits else dataset


def _describe(data: "Dataset", method: "Method") -> None:
    counts = ", ".join(f"{len(split)} {name}" for name, split in data.splits.items())
    note(f"{data.name}: {len(data.labels)} labels, images {counts}, shape {list(data.shape)}; method {method.name}")
    for one in data.skipped[:10]:
        note(f"Skipped {one.file}: {one.reason}")
    if len(data.skipped) > 10:
        note(f"Skipped {len(data.skipped)} in all; the log lists them.")


def _tell(classifier: "Classifier", folder: Path, json: bool) -> None:
    if json:
        print_json({"model": str(folder), "labels": list(classifier.labels.names), **classifier.origin.summary})
        return
    about, calibration = classifier.origin.summary["training"], classifier.origin.summary["calibration"]
    out().print(
        f"[bold]{folder}[/]: {len(classifier.labels)} labels, trained in {about['seconds']:.0f} s on {about['device']}"
    )
    accuracy = ""
    if "validation_accuracy" in about:
        accuracy = f"validation: accuracy {percent(about['validation_accuracy'])}, "
    elif "validation_precision" in about:
        accuracy = f"validation: mean average precision {percent(about['validation_precision'])}, "
    elif "naming" in classifier.origin.summary:
        print_naming(classifier)
        accuracy = "agreement with other restarts, not truth: "
    else:
        print_balance(classifier)
    out().print(f"{accuracy}calibration error {calibration_line(calibration)}")


def teach(  # noqa: PLR0913 - the options of the verb
    model: Model,
    name: Name,
    out_folder: Out,
    examples: Annotated[
        list[Path] | None, typer.Option(help="Pictures of it, or folders of pictures.", show_default=False)
    ] = None,
    more: Annotated[list[Path] | None, typer.Argument(help="More examples.", show_default=False)] = None,
    text: Annotated[
        list[str] | None, typer.Option(help="A sentence that describes it; repeat it for more.", show_default=False)
    ] = None,
    vector: Annotated[
        str | None, typer.Option(help="Its attributes: 0,1,0.5 or a .csv or .txt file.", show_default=False)
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Add a label from a few example pictures, or from a description, without training."""
    from labelwise.store import check_free, save
    from labelwise.tasks.teach import check_name
    from labelwise.tasks.teach import teach as run

    check_name(name)
    pictures = [*(examples or []), *(more or [])]
    given = [word for word, it in (("--examples", pictures), ("--text", text), ("--vector", vector)) if it]
    if len(given) != 1:
        raise UsageError(
            f"Give pictures (--examples), sentences (--text) or attributes (--vector); given: {listing(given) or 'none'}."
        )
    check_free(out_folder, overwrite)
    classifier = open_model(model, "cpu")
    if pictures:
        scores, files, _ = read(classifier, pictures, strict=False)
        taught, source = run(classifier, name, examples=scores), f"{len(files)} pictures"
    elif text:
        taught, source = run(classifier, name, texts=text), "its description"
    else:
        taught, source = run(classifier, name, vector=read_vector(vector or "", name)), "its attributes"
    save(taught, out_folder, overwrite=overwrite)
    out().print(f'[bold]{out_folder}[/]: "{name}" learnt from {source}; {len(taught.labels)} labels')


def forget(model: Model, name: Name, out_folder: Out, overwrite: Overwrite = False) -> None:
    """Remove a label."""
    from labelwise.store import check_free, save

    check_free(out_folder, overwrite)
    left = open_model(model, "cpu").remove(name)
    save(left, out_folder, overwrite=overwrite)
    out().print(f'[bold]{out_folder}[/]: "{name}" forgotten; {len(left.labels)} labels')


def calibrate(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Data,
    out_folder: Out,
    keep: Annotated[float, typer.Option(help="Share of known images that must not be called unknown.")] = 0.95,
    split: Annotated[str, typer.Option(help="Which split to calibrate on; never the one you test on.")] = "val",
    splits: Splits = None,
    root: Root = None,
    false_accepts: Annotated[
        float | None,
        typer.Option(
            help="For verify: share of different pairs to call the same; left out, as many as same pairs are missed."
        ),
    ] = None,
    by: ScoreBy = "similarity",
    overwrite: Overwrite = False,
) -> None:
    """Fit probabilities, the outlier rule and the threshold of verify anew, on held-out images of your own."""
    from labelwise.evaluate.tested import align_targets, all_truths
    from labelwise.store import check_free, save
    from labelwise.tasks.calibrate import calibrate as run
    from labelwise.tasks.verify import can_verify, fit_verifier

    check_free(out_folder, overwrite)
    classifier = open_model(model, "cpu")
    shape = classifier.shape
    dataset = _load(data, shape[1] if len(shape) == 3 else None, root, splits)
    chosen = dataset.split(split)
    given = all_truths if dataset.multilabel else align_targets
    targets = given(classifier, chosen, dataset.labels)
    scores = classifier.scores(chosen.images)
    done = run(scores, targets, keep=keep)
    if false_accepts is not None or by != "similarity" or (not dataset.multilabel and can_verify(targets)):
        own = chosen.targets if chosen.truths is None else chosen.truths
        done = fit_verifier(scores.of(done), own, "eer" if false_accepts is None else false_accepts, by=by)
    save(done, out_folder, overwrite=overwrite)
    figures = done.origin.summary["calibration"]
    out().print(f"[bold]{out_folder}[/]: calibration error {calibration_line(figures)}, on {figures['images']} images")


def demo(
    out_folder: Annotated[Path, typer.Option("--out", help="Where to write classifiers and pictures.")] = Path("demo"),
    epochs: Annotated[int | None, typer.Option(min=1, help="Fewer epochs for a quicker look.")] = None,
) -> None:
    """A tour on embedded data: train, compare, teach a new species, ask, explain."""
    from labelwise.demo import run

    run(out_folder, epochs)
