"""The shapes of answers and options, as the OpenAPI document states them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

MOST_TOP, MOST_TEXT = 100, 2_000
Shape = type[BaseModel]


class Nothing(BaseModel):
    """A route without options."""

    model_config = ConfigDict(extra="forbid")


def _shape(name: str, about: str, /, **fields: Any) -> Shape:
    """Return a document with these fields: each a type, or a type and its default or description; nothing else is in it."""
    pairs: dict[str, Any] = {key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in fields.items()}
    return create_model(name, __config__=Nothing.model_config, __doc__=about, **pairs)


def _many(shape: Shape) -> Any:
    return list[shape]  # type: ignore[valid-type]


def _field(kind: Any, words: str, **more: Any) -> tuple[Any, Any]:
    return kind, Field(description=words, **more)


_NAME = 'The best label; "unknown" where none fits, "none" where every answer is no.'
_HEAT = "Rows of values from 0 to 1; large where the image speaks for the label."
_AGAINST = "Likewise, for the other label and not for this one; both on one scale."
_MAYBE: tuple[Any, Any] = (str | None, None)
_SOURCE = Literal["training", "examples", "texts", "vector"]

Error = _shape(
    "Error",
    "Why a request was refused.",
    error=_field(str, "What is wrong, what was given, what to do.", examples=['No label "okapi".']),
)
Health = _shape("Health", "Whether the service is up.", status=Literal["ok"], model=str, labels=int, change=int)
Ready = _shape(
    "Ready",
    "Whether the service answers questions, and takes changes.",
    status=Literal["ready"],
    changes=Literal["taken", "refused", "away"],
    away=_field(float, "Seconds for which the store of changes has not answered; 0 where it does."),
    change=int,
)
Outlier = _shape(
    "Outlier", "How little an image fits.", score=_field(float, "Larger is stranger."), flagged=bool, threshold=float
)
Choice = _shape("Choice", "A label and its probability.", label=str, probability=float)
LabelAnswer = _shape("LabelAnswer", "Yes or no to one label.", label=str, yes=bool, probability=float)
Classification = _shape(
    "Classification",
    "What an image shows.",
    label=_field(str, _NAME),
    known=bool,
    probability=float,
    top=_many(Choice),
    outlier=Outlier | None,
    multilabel=bool,
    answers=(_many(LabelAnswer) | None, None),
    change=int,
)
_asked: dict[str, Any] = {"label": _MAYBE, "text": _MAYBE, "probability": float, "change": int}
Asked = _shape("Asked", "Yes or no, with a probability of a yes.", yes=bool, **_asked)
Explanation = _shape(
    "Explanation",
    "A heat map, or two of two labels set against each other.",
    heat=_field(list[list[float]], _HEAT),
    height=int,
    width=int,
    against=_MAYBE,
    heat_against=(list[list[float]] | None, Field(None, description=_AGAINST)),
    **_asked,
)
Verification = _shape(
    "Verification",
    "Whether two images show the same label.",
    same=bool,
    similarity=float,
    probability=float,
    threshold=float,
)
Match = _shape("Match", "An image of the gallery.", file=str, similarity=float, image=str)
Matches = _shape("Matches", "Images of the gallery, the most similar first.", matches=_many(Match))
KnownLabel = _shape(
    "KnownLabel",
    "A label and where it comes from.",
    name=str,
    taught=bool,
    source=(_SOURCE, Field(alias="from")),
    examples=(int | None, None),
    more=(int | None, Field(None, description="Images that it learned from by corrections.")),
)
Done = _shape("Done", "A change.", action=Literal["teach", "correct", "forget"], label=str)
LabelList = _shape(
    "LabelList", "All labels, in the order of the classifier.", change=int, labels=_many(KnownLabel), undo=Done | None
)
_CHECK = "What the examples of a taught label say of it, in words."
Changed = _shape(
    "Changed",
    "A change that is on disk.",
    label=str,
    labels=int,
    change=int,
    check=(str | None, Field(None, description=_CHECK)),
)
Undone = _shape("Undone", "A change that was undone.", undone=Done, labels=int, change=int)
Example = _shape("Example", "An image to try.", name=str, image=str)
VectorForm = _shape("VectorForm", "The attributes that describe a label.", size=int)
Card = _shape(
    "Card",
    "What the model is, what it can be asked and what to expect of it.",
    **dict.fromkeys(("model", "method"), str),
    **dict.fromkeys(("labels", "seen", "described"), int),
    **dict.fromkeys(("read_only", "multilabel"), bool),
    shape=list[int],
    trained=dict[str, Any],
    figures=dict[str, float],
    words=_field(dict[str, str], "What figures, and what is in trained, are called."),
    limits=list[str],
    can=_field(dict[str, str | None], "Null where it can; else why not."),
    vector=VectorForm | None,
    examples=_many(Example),
)


class TeachBody(Nothing):
    """A label described by sentences or by a vector."""

    label: str | None = None
    texts: list[str] | None = Field(default=None, min_length=1, max_length=100)
    vector: list[float] | None = Field(default=None, min_length=1, max_length=100_000)


class Top(Nothing):
    """How many to list."""

    top: int = Field(5, ge=1, le=MOST_TOP, description="How many to list.")


class TopOrCovering(Top):
    """How many to list, or as many as hold the right label at a rate."""

    coverage: float | None = Field(None, gt=0, lt=1, description="List enough labels to hold the right one this often.")


class TopEight(Top):
    """How many to list, eight if nothing is said."""

    top: int = Field(8, ge=1, le=MOST_TOP, description="How many to list.")


class Words(TopEight):
    """A sentence to search for."""

    text: str = Field(min_length=1, max_length=MOST_TEXT, description="A sentence.")


class AboutLabel(Nothing):
    """One label."""

    label: str = Field(min_length=1, max_length=500, description="A label.", examples=["barn owl"])


class MaybeAbout(Nothing):
    """One label, or none."""

    label: str | None = Field(None, min_length=1, max_length=500, description="A label.", examples=["barn owl"])


class About(MaybeAbout):
    """A label, or a sentence where the model reads texts."""

    text: str | None = Field(None, min_length=1, max_length=MOST_TEXT, description="A sentence.")


class AboutWhy(About):
    """A label or a sentence, and maybe another label to set against it."""

    against: str | None = Field(None, min_length=1, max_length=500, description="Another label: why not that one?")
