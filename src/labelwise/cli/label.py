"""The verb label: a web page to label a folder of photos with few answers."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from labelwise.cli.inputs import read_names
from labelwise.cli.options import shared_options
from labelwise.cli.output import note, show
from labelwise.support.errors import UsageError

EncoderOption = Annotated[str | None, Option("--encoder", help="The encoder; by default as fit chooses.")]


def label(  # noqa: PLR0913 - the options of the verb
    photos: Annotated[Path | None, Argument(help="A folder of photos; leave out to continue.")] = None,
    project: Annotated[Path, Option("--out", help="The folder of the project.")] = Path("project"),
    names: Annotated[str | None, Option(help="Labels: cat,dog or a .txt file, one per line.")] = None,
    encoder: EncoderOption = None,
    host: Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all networks.")] = "127.0.0.1",
    port: Annotated[int, Option(help="The port; 0 chooses a free one.")] = 8000,
    token: Annotated[str | None, Option(envvar="LABELWISE_TOKEN", help="Token that every request must carry.")] = None,
    labels_from: Annotated[Path | None, Option("--import", help="Answers to start with: what --export wrote.")] = None,
    guesses: Annotated[bool, Option("--guesses", help="Let --import take guesses for answers, too.")] = False,
    form: Annotated[str | None, Option("--export", help="Write the labels in this format, and exit.")] = None,
    min_probability: Annotated[
        float | None, Option(min=0, max=1, help="Least probability of an exported guess.")
    ] = None,
) -> None:
    """Label photos on a page, with few answers.

    You name images that look alike together, then answer the most useful questions. Every answer is saved before the next question:
    stop at any time and continue with the same command. Photos are never changed.
    """
    try:
        from labelwise.images.formats.answers import read_answers
        from labelwise.server.labelling.app import build
        from labelwise.server.labelling.export import export
        from labelwise.server.labelling.project import add_labels, open_project
        from labelwise.server.running import listening, serve_app, start_log
        from labelwise.server.settings import Service
    except ModuleNotFoundError as error:
        raise UsageError(f'The page needs {error.name}: pip install "labelwise[serve]".') from None
    if guesses and labels_from is None:
        raise UsageError("--guesses needs --import FILE.")
    if min_probability is not None and form is None:
        raise UsageError("--min-probability says which guesses --export writes. Give --export, too.")
    service = Service(model=project, host=host, port=port, token=token)
    if not service.loopback and token is None:
        note(f"Warning: everyone who can reach {host} can see these photos. Set --token, or --host 127.0.0.1.")
    label_names = read_names(names, 1) if names else ()
    with open_project(
        project, photos, label_names, encoder=encoder, seed=shared_options().seed, tell=note
    ) as labelling:
        if labels_from is not None:
            note(f"{add_labels(labelling, read_answers(labels_from, guesses=guesses))} labels imported")
        if form is not None:
            labels = labelling.session.labels(min_probability=min_probability)
            export_files = export(labelling.files, labels, project / "export", form)
            count = sum(bool(assignment.label) for assignment in labels)
            show({"written": str(export_files), "images": count}, f"{export_files}: {count} images")
            return
        with listening(service) as listener:
            start_log(service)
            bound_port = listener.getsockname()[1]
            note(
                f"Open http://{'127.0.0.1' if service.loopback else host}:{bound_port} in a browser. Ctrl-C stops; nothing is lost."
            )
            serve_app(build(labelling, service, project), service, listener)
