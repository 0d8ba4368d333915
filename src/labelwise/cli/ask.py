"""The verb ask: does the image show this label?"""

from dataclasses import asdict
from typing import Annotated

from typer import Argument, Option

from labelwise.cli.inputs import open_images, open_model
from labelwise.cli.options import Image, Model
from labelwise.cli.output import percent, show, styled
from labelwise.support.errors import UsageError


def ask(
    model: Model,
    image: Image,
    label: Annotated[str | None, Argument(help="The label to ask about.")] = None,
    text: Annotated[str | None, Option(help="A sentence to ask about instead of a label.")] = None,
) -> None:
    """Is it this label? Yes or no, with a probability."""
    from labelwise.tasks.ask import DRAFT, check_text
    from labelwise.tasks.ask import ask as run

    if (label is None) == (text is None):
        raise UsageError('Give either a label or a sentence: --text "a small white bird".')
    classifier = open_model(model)
    if text is not None:
        classifier = check_text(classifier, text)
    name = DRAFT if label is None else classifier.labels.meant(label)
    images, _, _ = open_images(classifier, [image], strict=True)
    scores = classifier.scores(images)
    (answer,) = run(scores, name)
    word = ("yes", "bold green") if answer.yes else ("no", "bold red")
    record = asdict(answer) if text is None else {**asdict(answer), "label": None, "text": text}
    line = styled(f"Is it {text or name}? ", word, f" (probability of a yes: {percent(answer.probability)})")
    is_doubtful = answer.yes and bool(scores.unknown[0])
    doubt = ["The image is unlike those of all labels: classify calls it unknown."] if is_doubtful else []
    show({"model": str(model), "file": str(image), **record}, line, *doubt)
