"""The verb name: clusters that a classifier named by itself, and a person's names for them."""

import csv
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from labelwise.cli.inputs import open_data_for, open_model, open_pictures
from labelwise.cli.options import AsJson, Device, Model, Overwrite, Root, Strict
from labelwise.cli.output import note, percent, plain_table, show
from labelwise.errors import DataError, UsageError, listing

if TYPE_CHECKING:
    from rich.console import RenderableType
    from torch import Tensor

    from labelwise.classifier import Classifier
    from labelwise.evaluate.naming import ClusterImages, NamedCluster

DATA_HELP = "Pictures to show: a folder, with or without label folders, or any data; for a model of features, features."
PAGE = "index.html"


@dataclass(frozen=True, eq=False, kw_only=True)
class Shown:
    """Images to show to a person, the name of each, and which of them belong to each cluster."""

    images: "Tensor"
    files: list[str]
    clusters: "list[ClusterImages]"


def name(  # noqa: PLR0913 - the options of the verb
    model: Model,
    data: Annotated[str | None, typer.Argument(help=DATA_HELP)] = None,
    answer: Annotated[
        list[str] | None,
        typer.Option(help='The name of a cluster, as "3=ship"; repeat it for more.'),
    ] = None,
    answers_file: Annotated[
        Path | None, typer.Option(help="A CSV of such answers, with the columns cluster and label.")
    ] = None,
    answers: Annotated[int, typer.Option(min=0, help="Ask for at most so many answers.")] = 0,
    out_folder: Annotated[Path | None, typer.Option("--out", help="The folder to write the classifier to.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="A folder to write a page with pictures of each label to.")
    ] = None,
    sheets: Annotated[
        Path | None, typer.Option(help='Where to draw a sheet of each cluster; else in the report, or in "clusters".')
    ] = None,
    examples: Annotated[
        int, typer.Option(min=1, help="How many images to show of a cluster, in each of two rows.")
    ] = 8,
    overwrite: Overwrite = False,
    root: Root = None,
    strict: Strict = False,
    json: AsJson = False,
    device: Device = "auto",
) -> None:
    """Are the names right? Shows the clusters of a zero_label classifier, and takes a person's names for them."""
    from labelwise.evaluate.naming import named_clusters
    from labelwise.fitting.naming import named_model
    from labelwise.store import check_free, save

    _check_places(data, answers, out_folder, report, overwrite)
    given = _given(answer or [], answers_file)
    if out_folder is not None:
        check_free(out_folder, overwrite)
    classifier = open_model(model, device)
    if classifier.labels.names != named_model(classifier).spec.labels.names and (given or answers):
        note("Labels that were taught or forgotten after fitting are lost: naming starts from the fitted labels.")
    classifier = _answered(classifier, given)
    shown = None if data is None else _look(classifier, data, examples, root, strict)
    place = sheets or report or Path("clusters")
    if answers:
        classifier = _ask(classifier, shown, _draw_sheets(classifier, shown, place), answers)
    drawn = _draw_sheets(classifier, shown, place)
    if report is not None and shown is not None:
        _write_page(classifier, shown, model, report)
    if out_folder is not None:
        save(classifier, out_folder, overwrite=overwrite)
    clusters = named_clusters(classifier)
    rows = [{**asdict(one), **_examples(one.cluster, shown), "sheet": drawn.get(one.cluster)} for one in clusters]
    said = classifier.origin.summary.get("answers", {})
    document = {"model": str(model), "clusters": rows, "answers": said, "out": out_folder and str(out_folder)}
    written = [Text(f"Report: {report / PAGE}")] if report else []
    written += [Text(f"Written: {out_folder}")] if out_folder else []
    show(document, *_tables(clusters, shown, drawn), *written, json=json)
    if given and out_folder is None and not json:
        note("Nothing was saved: this is what these answers would give. Keep it with --out.")
    if not json:
        note("No name was checked against a label: look at the pictures before you rely on it.")


def _check_places(data: str | None, answers: int, target: Path | None, report: Path | None, overwrite: bool) -> None:
    """Raise an error where what is asked for could not be kept or shown: before anything is read."""
    if answers and target is None:
        raise UsageError("Answers would be lost: say where to write the classifier, with --out.")
    if report is None:
        return
    if data is None:
        raise UsageError(
            "A report shows pictures; give the data they come from: labelwise name MODEL DATA --report FOLDER."
        )
    if (report / PAGE).exists() and not overwrite:
        raise UsageError(f"{report / PAGE} exists already. Choose another folder, or replace it with --overwrite.")


def _given(words: list[str], file: Path | None) -> dict[int, str]:
    """Return the answers that the shell and a table give, by cluster."""
    pairs = []
    for word in words:
        cluster, equals, label = word.partition("=")
        if not equals:
            raise UsageError(f'An answer is given as CLUSTER=LABEL, for example 3=ship; given "{word}".')
        pairs.append((cluster, label, f'"{word}"'))
    pairs += _rows(file) if file is not None else []
    found: dict[int, str] = {}
    for cluster, label, where in pairs:
        if not cluster.strip().isdecimal() or not label.strip():
            raise UsageError(f"An answer is the number of a cluster and a label, for example 3=ship; given {where}.")
        if found.setdefault(int(cluster), label.strip()) != label.strip():
            raise UsageError(
                f'Cluster {int(cluster)} is given two names: "{found[int(cluster)]}" and "{label.strip()}".'
            )
    return found


def _rows(file: Path) -> list[tuple[str, str, str]]:
    """Return cluster, label and place of each row of a table of answers."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.DictReader(stream, skipinitialspace=True))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f'Cannot read the answers in "{file}" ({error}). It must be a CSV file in UTF-8.') from None
    missing = [key for key in ("cluster", "label") if rows and key not in rows[0]]
    if missing or not rows:
        raise DataError(f'"{file}" needs the columns cluster and label, and a row for each answer; it lacks them.')
    return [(row["cluster"] or "", row["label"] or "", f'row {i} of "{file}"') for i, row in enumerate(rows, 1)]


def _answered(classifier: "Classifier", new: dict[int, str]) -> "Classifier":
    """Return the classifier with more answers; those given before stay."""
    from labelwise.fitting.naming import name_clusters

    if not new:
        return classifier
    before = {int(cluster): label for cluster, label in classifier.origin.summary.get("answers", {}).items()}
    return name_clusters(classifier, {**before, **new})


def _look(classifier: "Classifier", data: str, count: int, root: Path | None, strict: bool) -> Shown:
    """Return the images of the data and which to show of each cluster; no label is read."""
    from labelwise.data.read.pictures import as_batch, list_pictures
    from labelwise.evaluate.naming import cluster_images

    shape, path = classifier.shape, Path(data)
    if len(shape) == 3 and path.is_dir() and list_pictures(path):
        images, files, _ = open_pictures(classifier, [path], strict=strict)
    else:
        dataset = open_data_for(shape, data, root, strict=strict)
        where = "train" if "train" in dataset.splits else next(iter(dataset.splits))
        split = dataset.split(where)
        images = as_batch(split.images, shape)
        files = list(split.files) or [f"{where} {i}" for i in range(len(split))]
    return Shown(images=images, files=files, clusters=cluster_images(classifier, images, count))


def _draw_sheets(classifier: "Classifier", shown: Shown | None, folder: Path) -> dict[int, str]:
    """Draw a sheet of each cluster and return where it is; none without pictures."""
    if shown is None or shown.images.ndim != 4:
        return {}
    from labelwise.data.sheets import draw_sheet
    from labelwise.evaluate.naming import named_clusters

    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for one in named_clusters(classifier):
        own = shown.clusters[one.cluster]
        rows = {"nearest to the centre": own.nearest, "drawn at random from the rest": own.drawn}
        strips = {caption: shown.images[list(kept)] for caption, kept in rows.items()}
        sure = "a person said so" if one.answered else f"{percent(one.certainty)} sure"
        file = folder / f"cluster-{one.cluster:0{len(str(len(shown.clusters) - 1))}d}.png"
        wide = max(6, len(own.nearest))  # room for the title
        draw_sheet(f"{one.cluster}: {one.label} ({sure})", strips, wide).save(file)
        drawn[one.cluster] = str(file)
    return drawn


def _ask(classifier: "Classifier", shown: Shown | None, drawn: dict[int, str], most: int) -> "Classifier":
    """Return the classifier after at most so many answers, the least certain cluster asked first each time."""
    from labelwise.evaluate.naming import named_clusters

    note('A name, or empty: keep the name shown, "?": skip it, end of input (Ctrl-D): enough.')
    note(f"Labels: {listing(classifier.model.spec.labels.names, 100)}")
    skipped: set[int] = set()
    while most:
        open_ = [one for one in named_clusters(classifier) if not one.answered and one.cluster not in skipped]
        if not open_ or (len(open_) == 1 and not skipped):  # the last one is what is left
            break
        said = _question(open_[0], shown, drawn)
        if said is None:
            break
        if said == "?":
            skipped.add(open_[0].cluster)
            continue
        try:
            classifier = _answered(classifier, {open_[0].cluster: said or open_[0].label})
            most -= 1
        except UsageError as error:
            note(str(error))
    return classifier


def _question(one: "NamedCluster", shown: Shown | None, drawn: dict[int, str]) -> str | None:
    """Return what a person says a cluster is called, or None at the end of input."""
    if one.cluster in drawn:
        note(f"Cluster {one.cluster}: see {drawn[one.cluster]}")
    elif shown is not None:
        note(f"Cluster {one.cluster}: {listing(shown.files[row] for row in shown.clusters[one.cluster].nearest)}")
    others = "".join(f"; or {label} {percent(share)}" for label, share in one.others)
    print(
        f"Cluster {one.cluster} [{one.label}, {percent(one.certainty)} sure{others}]: ",
        end="",
        file=sys.stderr,
        flush=True,
    )
    line = sys.stdin.readline()
    return line.strip() if line else None


def _write_page(classifier: "Classifier", shown: Shown, model: Path, folder: Path) -> None:
    from labelwise.evaluate.naming import named_clusters
    from labelwise.report.naming_page import naming_page

    folder.mkdir(parents=True, exist_ok=True)
    page = naming_page(f"Names in {model.name}", named_clusters(classifier), shown.clusters, shown.images, shown.files)
    (folder / PAGE).write_text(page, encoding="utf-8")


def _examples(cluster: int, shown: Shown | None) -> dict[str, Any]:
    if shown is None:
        return {"examples": [], "drawn": [], "images": None}
    own = shown.clusters[cluster]
    named = [[shown.files[row] for row in rows] for rows in (own.nearest, own.drawn)]
    return {"examples": named[0], "drawn": named[1], "images": own.count}


def _tables(clusters: "list[NamedCluster]", shown: Shown | None, drawn: dict[int, str]) -> "Iterator[RenderableType]":
    table = plain_table(">cluster", "name", ">sure of it", "or else", ">images", ">expected", ">restarts agree")
    for one in clusters:
        sure = "you said so" if one.answered else percent(one.certainty)
        other = f"{one.others[0][0]} {percent(one.others[0][1])}" if one.others else ""
        cells = [str(one.cluster), one.label, sure, other, *map(percent, (one.size, one.share, one.agreement))]
        table.add_row(*map(Text, cells))
    yield table
    if drawn:
        yield Text(f"Sheets: {next(iter(drawn.values()))} and {len(drawn) - 1} more")
    elif shown is not None:
        near = plain_table(">cluster", "nearest to its centre")
        for one in clusters:
            near.add_row(str(one.cluster), Text(listing(_examples(one.cluster, shown)["examples"])))
        yield near
