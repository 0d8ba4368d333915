"""The verbs teach and forget: add and remove labels without training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rich.console import RenderableType
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_images, open_model
from labelwise.cli.options import Model, Name, Out, shared_options
from labelwise.cli.output import show, styled, warn
from labelwise.support.errors import UsageError, listing, suggest

TYPO = 0.85  # so alike are names that may be meant to be the same; "barn swallow" and "brick swallow" are 0.8 alike


@dataclass(frozen=True, kw_only=True)
class KnowledgeOptions:
    """Descriptions of the label, in addition to its images."""

    text: Annotated[list[str] | None, Option(help="A sentence that describes it; repeatable.")] = None
    vector: Annotated[str | None, Option(help="Its attributes: 0,1,0.5 or a .csv or .txt file.")] = None
    parent: Annotated[str | None, Option(help="The group that holds it, for coarser answers.")] = None


def teach(
    model: Model,
    name: Name,
    out_folder: Out,
    examples: Annotated[list[Path] | None, Argument(help="Images of it, or folders of images.")] = None,
    *,
    knowledge: KnowledgeOptions,
) -> None:
    """Add a label, or examples of a known one, without training."""
    from labelwise.core.store import check_free
    from labelwise.images.describe.labels import label_name
    from labelwise.images.describe.word_files import read_vector
    from labelwise.tasks.teach import measure_growth, rehearse
    from labelwise.tasks.teach import teach as run

    name, text, vector = label_name(name), knowledge.text, knowledge.vector
    sources = [word for word, value in (("images", examples), ("--text", text), ("--vector", vector)) if value]
    if not sources or (text and vector):
        raise UsageError(
            f"Give one of images, sentences (--text) and attributes (--vector); given: {listing(sources) or 'none'}."
        )
    check_free(out_folder, shared_options().overwrite)
    classifier = open_model(model)
    existing = classifier.labels.find(name)
    if existing is None and (hint := suggest(name, classifier.labels.names, TYPO)):
        warn(f'"{name}" is a new label.{hint}')
    name = existing or name
    attributes = read_vector(vector, name) if vector else None
    images, files, _ = open_images(classifier, examples) if examples else (None, [], None)
    scores = None if images is None else classifier.scores(images)
    result = run(classifier, name, examples=scores, texts=text, vector=attributes, parent=knowledge.parent)
    summary_lines = [
        ("1 image" if len(files) == 1 else f"{len(files)} images", examples),
        ("its description", text),
        ("its attributes", vector),
    ]
    source = " and ".join(word for word, value in summary_lines if value)
    lw.save(result, out_folder, overwrite=shared_options().overwrite)
    line = f': "{name}" learned from {source}; {len(result.labels)} labels'
    line = line if existing is None else f': "{name}", a known label, learned from {source} more'
    lines: list[RenderableType] = [styled((str(out_folder), "bold"), line)]
    if scores is not None and existing is None:
        lines.append(rehearse(classifier, name, scores, texts=text, vector=attributes).words(name, files))
    elif scores is not None:
        lines.append(measure_growth(classifier, name, scores).words(name))
    document = {"model": str(out_folder), "label": name, "new": existing is None, "examples": files}
    show(document | {"labels": list(result.labels.names)}, *lines)


def forget(model: Model, name: Name, out_folder: Out) -> None:
    """Remove a label."""
    from labelwise.core.store import check_free

    check_free(out_folder, shared_options().overwrite)
    classifier = open_model(model)
    name = classifier.labels.meant(name)
    reduced = classifier.remove(name)
    lw.save(reduced, out_folder, overwrite=shared_options().overwrite)
    line = styled((str(out_folder), "bold"), f': "{name}" forgotten; {len(reduced.labels)} labels')
    show({"model": str(out_folder), "label": name, "labels": list(reduced.labels.names)}, line)
