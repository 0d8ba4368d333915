"""The schemas of answers and options for the OpenAPI document."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

MOST_TOP, MOST_TEXT, MOST_LIST = 100, 2_000, 16_000
Shape = type[BaseModel]


class Nothing(BaseModel):
    """A route without options."""

    model_config = ConfigDict(extra="forbid")


def _shape(name: str, about: str, /, **fields: Any) -> Shape:
    """Return a model with exactly these fields: each a type, or a type with its default or description."""
    pairs: dict[str, Any] = {key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in fields.items()}
    return create_model(name, __config__=Nothing.model_config, __doc__=about, **pairs)


def _many(shape: Shape) -> Any:
    return list[shape]  # type: ignore[valid-type]


def _field(kind: Any, words: str, **more: Any) -> tuple[Any, Any]:
    return kind, Field(description=words, **more)


_NAME = (
    'The best label; "unknown" if none fits, "none" if every answer is no; with max_error also a parent, or "unsure".'
)
_PARENTS = "With max_error: the parents that hold the answer, the nearest first."
_HEAT = "Rows of values from 0 to 1; large where the image is evidence for the label."
_AGAINST = "The same for the other label; both maps share one scale."
_MAYBE: tuple[Any, Any] = (str | None, None)
_SOURCE = Literal["training", "examples", "texts", "vector"]

Error = _shape(
    "Error",
    "The reason for a refusal.",
    error=_field(str, "What is wrong, the value, and what to do.", examples=['No label "okapi".']),
)
Health = _shape("Health", "Whether the service is up.", status=Literal["ok"], model=str, labels=int, change=int)
Ready = _shape(
    "Ready",
    "Whether the service answers questions and accepts changes.",
    status=Literal["ready"],
    changes=Literal["taken", "refused", "away"],
    away=_field(float, "Seconds since the store of changes last answered; 0 if it answers."),
    change=int,
)
Outlier = _shape(
    "Outlier", "The outlier score of an image.", score=_field(float, "Larger fits less."), flagged=bool, threshold=float
)
Choice = _shape("Choice", "A label and its probability.", label=str, probability=float)
Restricted = _shape(
    "Restricted",
    "The labels that a list allowed.",
    labels=_field(int, "How many labels may occur."),
    others=_field(list[str], "Names of the list that are not labels here."),
)
LabelAnswer = _shape("LabelAnswer", "Yes or no for one label.", label=str, yes=bool, probability=float)
Classification = _shape(
    "Classification",
    "The labels of an image.",
    label=_field(str, _NAME),
    known=bool,
    probability=float,
    top=_many(Choice),
    outlier=Outlier | None,
    multilabel=bool,
    answers=(_many(LabelAnswer) | None, None),
    parents=(list[str] | None, Field(None, description=_PARENTS)),
    prior=(Restricted | None, None),
    change=int,
)
_asked: dict[str, Any] = {"label": _MAYBE, "text": _MAYBE, "probability": float, "change": int}
Asked = _shape("Asked", "Yes or no, with a probability of a yes.", yes=bool, **_asked)
Explanation = _shape(
    "Explanation",
    "A heat map, or two that contrast two labels.",
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
Match = _shape("Match", "A gallery image.", file=str, similarity=float, image=str)
Matches = _shape("Matches", "Gallery images, the most similar first.", matches=_many(Match))
KnownLabel = _shape(
    "KnownLabel",
    "A label and its origin.",
    name=str,
    taught=bool,
    source=(_SOURCE, Field(alias="from")),
    examples=(int | None, None),
    parents=(list[str] | None, Field(None, description="The groups that hold it, the nearest first.")),
    more=(int | None, Field(None, description="Number of corrections (images) it learned from.")),
)
Done = _shape("Done", "A change.", action=Literal["teach", "correct", "forget"], label=str)
LabelList = _shape(
    "LabelList", "All labels, in the order of the classifier.", change=int, labels=_many(KnownLabel), undo=Done | None
)
_CHECK = "A check of the examples of a taught label, in words."
Changed = _shape(
    "Changed",
    "A change that is on disk.",
    label=str,
    labels=int,
    change=int,
    check=(str | None, Field(None, description=_CHECK)),
)
Undone = _shape("Undone", "A change that was undone.", undone=Done, labels=int, change=int)
Example = _shape("Example", "An example image.", name=str, image=str)
VectorForm = _shape("VectorForm", "The attributes that describe a label.", size=int)
Card = _shape(
    "Card",
    "The model card: what the model is, which questions it answers, and its figures.",
    **dict.fromkeys(("model", "method"), str),
    **dict.fromkeys(("labels", "seen", "described"), int),
    **dict.fromkeys(("read_only", "multilabel"), bool),
    shape=list[int],
    trained=dict[str, Any],
    figures=dict[str, float],
    words=_field(dict[str, str], "Display names of figures and of entries in trained."),
    limits=list[str],
    can=_field(dict[str, str | None], "Null if it can; otherwise why not."),
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


class Promises(Top):
    """How many to list, or as many as hold the right label at a rate, how often an answer may be wrong, and which labels may occur."""

    max_error: float | None = Field(
        None, gt=0, lt=1, description="Answer with a parent, or unsure, to err no more often than this."
    )
    coverage: float | None = Field(None, gt=0, lt=1, description="List enough labels to hold the right one this often.")
    prior: str | None = Field(
        None,
        min_length=1,
        max_length=MOST_LIST,
        description="Only these may occur: one label a line, or a table whose first line is label,share.",
        examples=["barn owl\nwren"],
    )


class TopEight(Top):
    """How many to list, eight by default."""

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
    """A label, or a sentence if the model reads texts."""

    text: str | None = Field(None, min_length=1, max_length=MOST_TEXT, description="A sentence.")


class AboutTaught(MaybeAbout):
    """The label to teach, and what holds it."""

    parent: str | None = Field(
        None, min_length=1, max_length=200, description="The group that holds it.", examples=["owl"]
    )


class AboutWhy(About):
    """A label or a sentence, and optionally a second label to contrast with."""

    against: str | None = Field(None, min_length=1, max_length=500, description="A second label to contrast with.")
