"""What settings are for, read from the comments beside the fields, so that there is one place that says it."""

import ast
import inspect
import io
import json
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, get_type_hints

from labelwise.support.settings import options_of, to_plain


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, as ``--set help`` shows it."""

    group: str  # what it belongs to: the name of a field that has parts, "training", or the method
    about: str  # of the group, in a sentence
    key: str  # dotted
    default: str
    words: str  # what it is for


def explain(settings: Any, prefix: str = "", group: str = "", about: str = "") -> Iterator[Setting]:
    """Yield every setting with its default and its words; those of a part that is off by default, too."""
    hints, comments = get_type_hints(type(settings)), field_words(type(settings))
    for f in (f for f in fields(settings) if f.init):
        value, kinds = getattr(settings, f.name), reversed(type(settings).__mro__)
        home = next(kind for kind in kinds if f.name in getattr(kind, "__annotations__", {}))  # what brought it in
        inner = value if is_dataclass(value) else next((o for o in options_of(hints[f.name]) if is_dataclass(o)), None)
        if inner is None:
            own = group or ("training" if home.__subclasses__() else home.__name__.lower())
            key, words = f"{prefix}{f.name}", _plain(comments[f.name])
            yield Setting(
                group=own, about=about or _first(home), key=key, default=json.dumps(to_plain(value)), words=words
            )
            continue
        part = inner() if isinstance(inner, type) else inner
        off = "" if value is not None else "Off unless one of these is set. "
        words = off + (_plain(comments[f.name]) or _first(type(part)))
        yield from explain(part, f"{prefix}{f.name}.", f"{prefix}{f.name}", words)


def field_words(kind: type) -> dict[str, str]:
    """Return the comments above and beside each field of a dataclass; one without takes those of the class it overrides."""
    words: dict[str, str] = {}
    for cls in reversed([cls for cls in kind.__mro__ if is_dataclass(cls)]):
        source = textwrap.dedent(inspect.getsource(cls))
        tokens = tokenize.generate_tokens(io.StringIO(source).readline)
        comments = {t.start[0]: t for t in tokens if t.type == tokenize.COMMENT}
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.ClassDef)
        for node in (
            node for node in tree.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        ):
            first = node.lineno
            while first - 1 in comments and not comments[first - 1].line[: comments[first - 1].start[1]].strip():
                first -= 1
            end = node.end_lineno or node.lineno
            said = " ".join(comments[n].string.lstrip("# ") for n in range(first, end + 1) if n in comments)
            name = ast.unparse(node.target)
            words[name] = said or words.get(name, "")
    return words


def _first(kind: type) -> str:
    """Return what a class is, in the first line of its docstring."""
    return _plain((inspect.getdoc(kind) or "").partition("\n")[0])


def _plain(words: str) -> str:
    """Return words without the marks of code, as a sentence begins."""
    plain = words.replace("`", "")
    return plain[:1].upper() + plain[1:]
