"""The shapes of answers, as the OpenAPI document states them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

MOST_TOP, MOST_TEXT = 100, 2_000


class Said(BaseModel):
    """What all answers share: nothing that is not declared."""

    model_config = ConfigDict(extra="forbid")


class Error(Said):
    """Why a request was refused."""

    error: str = Field(description="What is wrong, what was given, what to do.", examples=['No label "okapi".'])


class Health(Said):
    """Whether the service is up."""

    status: Literal["ok"]
    model: str
    labels: int
    change: int


class Outlier(Said):
    """How little a picture fits."""

    score: float = Field(description="Larger is stranger.")
    flagged: bool
    threshold: float


class Choice(Said):
    """A label and its probability."""

    label: str
    probability: float


class LabelAnswer(Said):
    """Yes or no to one label."""

    label: str
    yes: bool
    probability: float


class Classification(Said):
    """What a picture shows."""

    label: str = Field(description='The best label; "unknown" where none fits, "none" where every answer is no.')
    known: bool
    probability: float
    top: list[Choice]
    outlier: Outlier | None
    multilabel: bool
    answers: list[LabelAnswer] | None = None
    change: int


class Asked(Said):
    """Yes or no, with a probability of a yes."""

    label: str | None = None
    text: str | None = None
    yes: bool
    probability: float
    change: int


class Explanation(Said):
    """A heat map."""

    label: str | None = None
    text: str | None = None
    probability: float
    heat: list[list[float]] = Field(
        description="Rows of values from 0 to 1; large where the picture speaks for the label."
    )
    height: int
    width: int
    change: int


class Verification(Said):
    """Whether two pictures show the same label."""

    same: bool
    similarity: float
    probability: float
    threshold: float


class Match(Said):
    """A picture of the gallery."""

    file: str
    similarity: float
    picture: str


class Matches(Said):
    """Pictures of the gallery, the most similar first."""

    matches: list[Match]


class KnownLabel(BaseModel):
    """A label and where it comes from."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    name: str
    taught: bool
    source: Literal["training", "examples", "texts", "vector"] = Field(alias="from")
    examples: int | None = None


class Done(Said):
    """A change."""

    action: Literal["teach", "forget"]
    label: str


class LabelList(Said):
    """All labels, in the order of the classifier."""

    change: int
    labels: list[KnownLabel]
    undo: Done | None


class Changed(Said):
    """A change that is on disk."""

    label: str
    labels: int
    change: int


class Undone(Said):
    """A change that was taken back."""

    undone: Done
    labels: int
    change: int


class Example(Said):
    """A picture to try."""

    name: str
    picture: str


class VectorForm(Said):
    """The attributes that describe a label."""

    size: int


class Card(Said):
    """What the model is, what it can be asked and what to expect of it."""

    model: str
    method: str
    shape: list[int]
    labels: int
    seen: int
    described: int
    trained: dict[str, Any]
    figures: dict[str, float]
    limits: list[str]
    can: dict[str, str | None] = Field(description="Null where it can; else why not.")
    read_only: bool
    multilabel: bool
    vector: VectorForm | None
    examples: list[Example]


class TeachBody(BaseModel):
    """A label described by sentences or by a vector."""

    model_config = ConfigDict(extra="forbid")
    label: str | None = None
    texts: list[str] | None = Field(default=None, min_length=1, max_length=100)
    vector: list[float] | None = Field(default=None, min_length=1, max_length=100_000)


class Nothing(BaseModel):
    """A route without options."""

    model_config = ConfigDict(extra="forbid")


class Top(Nothing):
    """How many to list."""

    top: int = Field(5, ge=1, le=MOST_TOP, description="How many to list.")


class TopEight(Top):
    """How many to list, eight if nothing is said."""

    top: int = Field(8, ge=1, le=MOST_TOP, description="How many to list.")


class AboutLabel(Nothing):
    """One label."""

    label: str = Field(min_length=1, max_length=500, description="A label.", examples=["barn owl"])


class MaybeAbout(Nothing):
    """One label, or none."""

    label: str | None = Field(None, min_length=1, max_length=500, description="A label.", examples=["barn owl"])


class About(MaybeAbout):
    """A label, or a sentence where the model reads texts."""

    text: str | None = Field(None, min_length=1, max_length=MOST_TEXT, description="A sentence.")
