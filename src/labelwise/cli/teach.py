"""The verbs teach and forget: labels added and removed without training."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_model, open_pictures
from labelwise.cli.options import Model, Name, Out, Overwrite
from labelwise.cli.output import out, show, styled
from labelwise.support.errors import UsageError, listing


def teach(  # noqa: PLR0913 - the options of the verb
    model: Model,
    name: Name,
    out_folder: Out,
    examples: Annotated[list[Path] | None, Option(help="Images of it, or folders of images.")] = None,
    more: Annotated[list[Path] | None, Argument(help="More examples.")] = None,
    text: Annotated[list[str] | None, Option(help="A sentence that describes it; repeat it for more.")] = None,
    vector: Annotated[str | None, Option(help="Its attributes: 0,1,0.5 or a .csv or .txt file.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Add a label from a few examples or a description."""
    from labelwise.core.store import check_free
    from labelwise.images.describe.labels import label_name
    from labelwise.images.describe.vector_files import read_vector
    from labelwise.tasks.teach import rehearse
    from labelwise.tasks.teach import teach as run

    name = label_name(name)
    pictures = [*(examples or []), *(more or [])]
    sources = [word for word, it in (("--examples", pictures), ("--text", text), ("--vector", vector)) if it]
    if not sources or (text and vector):
        raise UsageError(
            f"Give pictures (--examples), sentences (--text) or attributes (--vector); given: {listing(sources) or 'none'}."
        )
    check_free(out_folder, overwrite)
    classifier = open_model(model)
    attributes = read_vector(vector, name) if vector else None
    images, files, _ = open_pictures(classifier, pictures) if pictures else (None, [], None)
    classifier.labels.check_new(name)
    scores = None if images is None else classifier.scores(images)
    taught = run(classifier, name, examples=scores, texts=text, vector=attributes)
    told = [
        ("1 picture" if len(files) == 1 else f"{len(files)} pictures", pictures),
        ("its description", text),
        ("its attributes", vector),
    ]
    source = " and ".join(word for word, it in told if it)
    lw.save(taught, out_folder, overwrite=overwrite)
    out().print(styled((str(out_folder), "bold"), f': "{name}" learnt from {source}; {len(taught.labels)} labels'))
    if scores is not None:
        about = rehearse(classifier, name, scores, texts=text, vector=attributes)
        show(None, about.words(name, files), json=False)


def forget(model: Model, name: Name, out_folder: Out, overwrite: Overwrite = False) -> None:
    """Remove a label."""
    from labelwise.core.store import check_free

    check_free(out_folder, overwrite)
    left = open_model(model).remove(name)
    lw.save(left, out_folder, overwrite=overwrite)
    out().print(styled((str(out_folder), "bold"), f': "{name}" forgotten; {len(left.labels)} labels'))
