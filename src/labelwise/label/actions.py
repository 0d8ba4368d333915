"""Actions: one record for each step of a person. A session is its list of actions, so storing these stores it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from labelwise.images.describe.labels import label_name
from labelwise.support.errors import UsageError

Kind = Literal["name", "not", "unknown", "skip", "add", "merge", "split", "undo"]
Form = Literal["what", "yes", "sheet", "check", "import", "hand"]
NAMED = ("name", "not", "add", "merge")  # kinds that need a label
ROWS: Mapping[str, tuple[int, float]] = {  # how many images each takes
    "name": (1, float("inf")), "not": (1, float("inf")), "unknown": (1, float("inf")), "skip": (1, float("inf")),
    "add": (0, 0), "merge": (0, 0), "split": (1, float("inf")), "undo": (0, 0),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Action:
    """A step of a person.

    name: the images show the label. not: they do not show it. unknown: they show none of the labels. skip: no answer.
    add: a new label. merge: the label becomes another one, ``into``. split: the images are no group. undo: takes back the
    action ``of``.
    """

    kind: Kind
    rows: tuple[int, ...] = ()
    label: str = ""
    into: str = ""  # of merge
    of: int = -1  # of undo: the place of the action that is taken back
    form: Form = "hand"  # of the question that was answered
    guess: str = ""  # what the session thought of the image of a check, which the person did not see
    person: str = ""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        if self.kind not in get_args(Kind):
            raise UsageError(f'An action is one of {", ".join(get_args(Kind))}; given "{self.kind}".')
        if self.form not in get_args(Form):
            raise UsageError(f'The form of a question is one of {", ".join(get_args(Form))}; given "{self.form}".')
        least, most = ROWS[self.kind]
        if not least <= len(self.rows) <= most or len(set(self.rows)) < len(self.rows):
            raise UsageError(f'The action "{self.kind}" does not take {len(self.rows)} images: {list(self.rows[:5])}.')
        if self.kind in NAMED:
            label_name(self.label)
        if self.kind == "merge":
            label_name(self.into)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> "Action":
        """Read an action from a JSON document; raise an error for unknown keys and wrong types."""
        known = {"kind": "", **document, "rows": document.get("rows", ())}
        if unknown := set(known) - set(cls.__dataclass_fields__):
            raise UsageError(f"An action has no {', '.join(sorted(map(str, unknown)))}.")
        texts = all(
            isinstance(known.get(name, ""), str) for name in ("kind", "label", "into", "form", "guess", "person")
        )
        if not texts or not _whole(known["rows"]) or not _whole([known.get("of", -1)]):
            raise UsageError("An action holds texts, and images as a list of whole numbers.")
        seconds = known.get("seconds", 0)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
            raise UsageError("The seconds of an action are a number from 0 on.")
        return cls(**{**known, "rows": tuple(known["rows"])})

    def document(self) -> dict[str, Any]:
        """Return the JSON document for ``read``, without default values."""
        return {name: value for name, value in asdict(self).items() if value != self.__dataclass_fields__[name].default}


def _whole(rows: Any) -> bool:
    """Return whether these are integers."""
    listed = isinstance(rows, Sequence) and not isinstance(rows, str | bytes)
    return listed and all(isinstance(row, int) and not isinstance(row, bool) for row in rows)
