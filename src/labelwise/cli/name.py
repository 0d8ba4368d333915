"""The verb name: review and correct the names that zero_label gave to clusters."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_data_for, open_images, open_model
from labelwise.cli.options import Model, shared_options
from labelwise.cli.output import note, percent, plain_table, show, styled
from labelwise.support.errors import UsageError, listing, suggest
from labelwise.support.text import visible
from labelwise.support.writable import write_by, write_file

if TYPE_CHECKING:
    from labelwise.core.classifier import Classifier
    from labelwise.evaluation.naming import ClusterImages, NamedCluster
    from labelwise.methods.zero_label.meter import Settled

DATA_HELP = "Images to show examples from."
PAGE = "index.html"
EXAMPLES = 8  # images of a cluster per row; a sheet has two rows


@dataclass(frozen=True, eq=False, kw_only=True)
class Sheets:
    """Images to show, their file names, and the rows of each cluster."""

    images: Mapping[int, Any]  # shown images by row, bytes [c, h, w]; empty for features
    files: list[str]
    clusters: "list[ClusterImages]"

    def examples(self, cluster: int) -> dict[str, Any]:
        """Return the shown images of a cluster as JSON values."""
        own = self.clusters[cluster]
        nearest, random = ([self.files[row] for row in rows] for rows in (own.nearest, own.sample))
        return {"examples": nearest, "drawn": random, "images": own.count}

    def draw(self, clusters: "list[NamedCluster]", folder: Path) -> dict[int, str]:
        """Draw a sheet per cluster and return their paths; none without images."""
        if not self.images:
            return {}
        import numpy as np

        from labelwise.images.sheets import draw_sheet

        files = {}
        for cluster in clusters:
            own = self.clusters[cluster.cluster]
            rows = {"nearest to the centre": own.nearest, "drawn at random from the rest": own.sample}
            strips = {
                caption: np.array([self.images[row] for row in rows_drawn]) for caption, rows_drawn in rows.items()
            }
            sure = "a person said so" if cluster.answered else "a guess"
            file = folder / f"cluster-{cluster.cluster:0{len(str(len(self.clusters) - 1))}d}.png"
            wide = max(6, len(own.nearest))  # room for the title
            sheet = draw_sheet(f"{cluster.cluster}: {cluster.label} ({sure})", strips, wide)
            write_by(file, partial(sheet.save, format="PNG"))
            files[cluster.cluster] = str(file)
        return files


def name(
    model: Model,
    data: Annotated[str | None, Argument(help=DATA_HELP)] = None,
    answer: Annotated[list[str] | None, Option(help="3=ship, or a CSV with columns cluster and label.")] = None,
    answers: Annotated[int, Option("--ask", min=0, help="Ask for at most this many names.")] = 0,
    out_folder: Annotated[Path | None, Option("--out", help="The folder to write the classifier to.")] = None,
    report: Annotated[Path | None, Option(help="A folder for a page with images of each label.")] = None,
) -> None:
    """Review the names that zero_label gave to clusters."""
    from labelwise.evaluation.naming import named_clusters
    from labelwise.methods.zero_label.rename import named_head, settled_names
    from labelwise.reporting.naming_page import naming_page

    _check_places(data, answers, out_folder, report)
    names = _names(answer or [])
    classifier = open_model(model)
    if classifier.labels.names != named_head(classifier).labels.names and (names or answers):
        note("Labels taught or forgotten after fitting are lost: naming starts from the fitted labels.")
    classifier = _teach_names(classifier, names)
    sheets = None if data is None else _look(classifier, data)
    folder = report or Path("clusters")
    if answers:
        files = sheets.draw(named_clusters(classifier), folder) if sheets else {}
        classifier = _ask(classifier, sheets, files, answers)
    clusters = named_clusters(classifier)
    files = sheets.draw(clusters, folder) if sheets else {}
    lines = [*_tables(clusters, sheets, files), *_settled_lines(settled_names(classifier), clusters)]
    if report is not None and sheets is not None:
        page = naming_page(f"Names in {model.name}", clusters, sheets.clusters, sheets.images, sheets.files)
        write_file(report / PAGE, visible(page, lines=True).encode())
        lines.append(styled(f"Report: {report / PAGE}"))
    if out_folder is not None:
        lw.save(classifier, out_folder, overwrite=shared_options().overwrite)
        lines.append(styled(f"Written: {out_folder}"))
    document = _document(classifier, clusters, sheets, files)
    document |= {"model": str(model), "out": out_folder and str(out_folder)}
    show(document, *lines)
    if shared_options().json:
        return
    if names and out_folder is None:
        note("Preview only, nothing was saved. Save it with --out.")
    note("No name was checked against a label: look at the images before you rely on it.")


def _document(
    classifier: "Classifier", clusters: "Sequence[NamedCluster]", sheets: "Sheets | None", files: Mapping[int, str]
) -> dict[str, Any]:
    """Return the names of clusters and their certainty as JSON."""
    from labelwise.methods.zero_label.rename import settled_names

    empty: dict[str, Any] = {"examples": [], "drawn": [], "images": None}
    rows = [
        {
            **asdict(cluster),
            **(sheets.examples(cluster.cluster) if sheets else empty),
            "sheet": files.get(cluster.cluster),
        }
        for cluster in clusters
    ]
    state = settled_names(classifier)
    return {
        "clusters": rows,
        "answers": classifier.origin.summary.get("answers", {}),
        "namings": round(state.namings, 1),
        "may_be": state.may_be,
        "worth": [round(gain, 4) for gain in state.worth],
    }


def _check_places(data: str | None, answers: int, target: Path | None, report: Path | None) -> None:
    """Check options and output paths before any image is read."""
    from labelwise.core.store import check_free

    if target is not None:
        check_free(target, shared_options().overwrite)
    elif answers:
        raise UsageError("Answers would be lost. Give a folder for the classifier with --out.")
    if report is None:
        return
    if data is None:
        raise UsageError("A report shows images. Give their data: labelwise name MODEL DATA --report FOLDER.")
    if (report / PAGE).exists() and not shared_options().overwrite:
        raise UsageError(f"{report / PAGE} exists already. Choose another folder, or replace it with --overwrite.")


def _names(words: list[str]) -> dict[int, str]:
    """Return the answers on the command line, single or from tables, by cluster."""
    rows: list[tuple[str, ...]] = []
    for word in words:
        rows += _rows(Path(word)) if Path(word).suffix.lower() == ".csv" else [(*word.partition("=")[::2], f'"{word}"')]
    names: dict[int, str] = {}
    for cluster, label, origin in ([cell.strip() for cell in row] for row in rows):
        if not cluster.isdecimal() or not label:
            form = "CLUSTER=LABEL, the number of a cluster and a label"
            raise UsageError(f"Write an answer as {form}, for example 3=ship; given {origin}.")
        if names.setdefault(int(cluster), label) != label:
            raise UsageError(f'Cluster {int(cluster)} has two names: "{names[int(cluster)]}" and "{label}". Give one.')
    return names


def _rows(file: Path) -> list[tuple[str, ...]]:
    """Return cluster, label and position of each row of a table of answers."""
    from labelwise.images.sources.delimited import read_fields

    rows = read_fields(file, "cluster", "label", noun="table of answers")
    return [(row["cluster"], row["label"], f'row {number} of "{file}"') for number, row in rows]


def _teach_names(classifier: "Classifier", new: dict[int, str]) -> "Classifier":
    """Return the classifier with more answers; earlier answers are kept."""
    from labelwise.methods.zero_label.rename import name_clusters, named_head

    if not new:
        return classifier
    labels = named_head(classifier).labels
    for label in dict.fromkeys(label for label in new.values() if labels.find(label) is None):
        note(f'"{label}" is a new name; it becomes a label.{suggest(label, labels.names)}')
    before = {int(cluster): label for cluster, label in classifier.origin.summary.get("answers", {}).items()}
    return name_clusters(classifier, {**before, **new})


def _look(classifier: "Classifier", data: str) -> Sheets:
    """Return the images of the data and the rows to show of each cluster; no label is read."""
    from labelwise.evaluation.naming import cluster_images
    from labelwise.images.sources.paths import list_images

    path = Path(data)
    if len(classifier.shape) == 3 and path.is_dir() and list_images(path):
        images, files, _ = open_images(classifier, [path])
    else:
        dataset = open_data_for(classifier, data)
        where = "train" if "train" in dataset.splits else next(iter(dataset.splits))
        split = dataset.split(where)
        images = split.images
        files = list(split.files) or [f"{where} {i}" for i in range(len(split))]
    clusters = cluster_images(classifier, images, EXAMPLES)
    rows = (
        sorted({row for cluster in clusters for row in cluster.nearest + cluster.sample})
        if len(classifier.shape) == 3
        else []
    )
    pixels = dict(zip(rows, images.read(rows, classifier.shape, classifier.encoder.fit), strict=True)) if rows else {}
    return Sheets(images=pixels, files=files, clusters=clusters)


def _ask(classifier: "Classifier", sheets: Sheets | None, files: dict[int, str], most: int) -> "Classifier":
    """Ask at most ``most`` questions, each about the cluster with the most informative answer, and return the classifier."""
    from labelwise.evaluation.naming import named_clusters
    from labelwise.methods.zero_label.rename import settled_names

    note('Type a name, nothing to accept the name shown, "?" to skip, or Ctrl-D to stop.')
    note(f"Labels: {listing(classifier.head.labels.names, 100)}")
    skipped_clusters: set[int] = set()
    while most:
        open_ = [
            cluster
            for cluster in named_clusters(classifier)
            if not cluster.answered and cluster.cluster not in skipped_clusters
        ]
        if not open_ or (len(open_) == 1 and not skipped_clusters):  # the last share is the remainder
            break
        worth = settled_names(classifier).worth
        open_.sort(key=lambda cluster: -worth[cluster.cluster])  # ties go to the least certain
        reply = _question(open_[0], sheets, files)
        if reply is None:
            break
        if reply == "?":
            skipped_clusters.add(open_[0].cluster)
            continue
        try:
            classifier = _teach_names(classifier, {open_[0].cluster: reply or open_[0].label})
            most -= 1
        except UsageError as error:
            note(str(error))
    return classifier


def _question(cluster: "NamedCluster", sheets: Sheets | None, files: dict[int, str]) -> str | None:
    """Ask for the name of a cluster; None at the end of input."""
    if cluster.cluster in files:
        note(f"Cluster {cluster.cluster}: see {files[cluster.cluster]}")
    elif sheets is not None:
        note(f"Cluster {cluster.cluster}: {listing(sheets.examples(cluster.cluster)['examples'])}")
    alternatives = "".join(f", or {label}" for label, _ in cluster.others)
    question = f"Cluster {cluster.cluster} [a guess: {cluster.label}{alternatives}]: "
    print(visible(question), end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip() if line else None


def _settled_lines(state: "Settled", clusters: "list[NamedCluster]") -> Iterator[RenderableType]:
    """Yield the number of possible names, the certainty of each cluster, and the next question."""
    if state.namings < 1.5:
        return
    yield styled(
        f"About {state.namings:.0f} namings fit as well as this one; only labels or a person can tell them apart."
    )
    coarse = [
        f"{cluster.cluster} is {' or '.join(state.may_be[cluster.cluster])}"
        for cluster in clusters
        if len(state.may_be[cluster.cluster]) in (2, 3)
    ]
    if coarse:
        yield styled(f"Nearly sure: cluster {listing(coarse, 10)}.")
    best = max(range(len(state.worth)), key=state.worth.__getitem__)
    if state.worth[best] > 0:
        yield styled(
            f"Worth most to ask about: cluster {best} ({percent(state.worth[best])} more of the images, by these namings)."
        )


def _tables(clusters: "list[NamedCluster]", sheets: Sheets | None, files: dict[int, str]) -> Iterator[RenderableType]:
    table = plain_table(">cluster", "name", "named by", "or else", ">images", ">expected", ">restarts agree")
    for cluster in clusters:
        sure = "you" if cluster.answered else "a guess"
        alternative = cluster.others[0][0] if cluster.others and not cluster.answered else ""
        cells = [
            str(cluster.cluster),
            cluster.label,
            sure,
            alternative,
            *map(percent, (cluster.size, cluster.share, cluster.agreement)),
        ]
        table.add_row(*cells)
    yield table
    if files:
        yield styled(f"Sheets: {next(iter(files.values()))} and {len(files) - 1} more")
    elif sheets is not None:
        near = ((str(cluster.cluster), listing(sheets.examples(cluster.cluster)["examples"])) for cluster in clusters)
        yield plain_table(">cluster", "nearest to its centre", rows=near)
