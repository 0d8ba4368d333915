"""The verb publish: show the model card of a classifier, or send both to a model hub."""

from dataclasses import asdict, dataclass
from typing import Annotated

from typer import Argument, Option

from labelwise.cli.inputs import open_model
from labelwise.cli.options import Model
from labelwise.cli.output import one_line, show, styled


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """Facts for the model card that the classifier cannot know."""

    licence: Annotated[str, Option(help="Licence of the classifier, such as apache-2.0.")] = ""
    use: Annotated[str, Option(help="What it is meant for, in a sentence.")] = ""
    data: Annotated[str, Option(help="Where its images come from.")] = ""


def publish(
    model: Model,
    repository: Annotated[str | None, Argument(help="user/name on the hub; leave out to see the card.")] = None,
    *,
    words: CardOptions,
    private: Annotated[bool, Option("--private", help="Make a new repository private.")] = False,
    onnx: Annotated[bool, Option("--onnx", help="Also send it as one ONNX file.")] = False,
) -> None:
    """Show the model card, or send it with the model to a hub.

    The token is that of "hf auth login", or the variable HF_TOKEN.
    """
    from labelwise.reporting.model_card import CardWords, model_card
    from labelwise.reporting.publish import publish as send

    classifier, own = open_model(model), CardWords(**asdict(words))
    if repository is None:
        card = model_card(classifier, f"user/{model.stem}", own)
        show({"model": str(model), "card": card}, *map(one_line, card.splitlines()))
        return
    published = send(classifier, repository, own, private=private, onnx=onnx)
    show(
        {"model": str(model), **asdict(published)}, styled((published.address, "bold"), f" published: {published.url}")
    )
