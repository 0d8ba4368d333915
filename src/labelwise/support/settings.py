"""Convert settings between frozen dataclasses, JSON, and ``key=value`` words from the shell.

    @dataclass(frozen=True)
    class Optimizer:
        lr: float = setting(0.1, "Largest learning rate.")

Strict on purpose: an unknown key or a value of the wrong kind is an error that names the nearest valid key.
"""

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from inspect import getdoc
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from labelwise.support.errors import UsageError, listing, suggest

T = TypeVar("T")
# Cached: resolving the annotations of a class takes longer than reading its settings.
hints_of: Callable[[type], dict[str, Any]] = cache(get_type_hints)


def setting(default: T, words: str) -> T:
    """Declare a setting as a dataclass field with a default and a help text."""
    return field(default=default, metadata={"help": words})


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting, as ``labelwise settings`` shows it."""

    group: str  # the name of a field that has parts, "training", or the method
    description: str  # of the group, in a sentence
    key: str  # dotted
    default: str
    words: str  # its help text


def explain(settings: Any, prefix: str = "", group: str = "", description: str = "") -> Iterator[Setting]:
    """Yield every setting with its default and help text, including parts that are off by default."""
    kind = type(settings)
    hints = hints_of(kind)
    for f in (f for f in fields(settings) if f.init):
        value = getattr(settings, f.name)
        home = next(parent for parent in reversed(kind.__mro__) if f.name in getattr(parent, "__annotations__", {}))
        inner = value if is_dataclass(value) else next((o for o in options_of(hints[f.name]) if is_dataclass(o)), None)
        if inner is None:
            own = group or (home.__name__.lower() if home is kind or "name" in vars(home) else "training")
            yield Setting(
                group=own,
                description=description or _summary(home),
                key=f"{prefix}{f.name}",
                default="none" if value is None else json.dumps(to_plain(value)),
                words=help_of(kind, f.name),
            )
            continue
        part = inner() if isinstance(inner, type) else inner
        condition = "" if value is not None else "Off unless one of these is set. "
        words = condition + (help_of(kind, f.name) or _summary(type(part)))
        yield from explain(part, f"{prefix}{f.name}.", f"{prefix}{f.name}", words)


def help_of(kind: type, name: str) -> str:
    """Return the help text of a setting; a class that changes a default inherits the text."""
    for parent in kind.__mro__:
        f = vars(parent).get("__dataclass_fields__", {}).get(name)
        if f is not None and "help" in f.metadata:
            return str(f.metadata["help"])
    return ""


def _summary(kind: type) -> str:
    """Return the first line of the docstring of a class."""
    return (getdoc(kind) or "").partition("\n")[0].replace("`", "")


def to_plain(value: Any) -> Any:
    """Convert settings to JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if f.init}
    if isinstance(value, dict):
        return {name: to_plain(part) for name, part in value.items()}
    return [to_plain(v) for v in value] if isinstance(value, tuple | list) else value


def from_plain(kind: type[T], values: Mapping[str, Any], place: str = "") -> T:
    """Return settings of class ``kind`` with these values; missing keys keep their defaults."""
    hints = hints_of(kind)
    names = [f.name for f in fields(kind) if f.init]  # type: ignore[arg-type]
    for key in values:
        if key not in names:
            raise UsageError(
                f'No setting "{place}{key}".{suggest(key, names)} Settings: {listing((place + k for k in names), 40)}.'
            )
    for f in fields(kind):  # type: ignore[arg-type]
        if f.init and f.default is MISSING and f.default_factory is MISSING and f.name not in values:
            raise UsageError(f'"{place}{f.name}" is missing.')
    return kind(**{key: convert(value, hints[key], f"{place}{key}") for key, value in values.items()})


def override(settings: T, pairs: Mapping[str, str]) -> T:
    """Return the settings with values given as text under dotted keys, such as ``optimizer.lr`` = ``0.05``.

    All change at once, so that settings which depend on each other can be given together.
    """
    result: T = _override(settings, [(key.split("."), text, key) for key, text in pairs.items()])
    return result


def pairs_of(words: Sequence[str]) -> dict[str, str]:
    """Parse ``key=value`` words; raise an error if a key has two different values."""
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f'Write a setting as key=value; given "{word}".')
        if pairs.setdefault(key, value) != value:
            raise UsageError(f'Setting "{key}" is given twice, as "{pairs[key]}" and as "{value}". Keep one of them.')
    return pairs


def of_the_run(words: list[str]) -> tuple[str, int]:
    """Remove the settings of the run from the words, and return them: how a GPU takes steps, and of how many batches."""
    own = [word for word in words if word.startswith(("run.engine=", "run.accumulate="))]
    words[:] = [word for word in words if word not in own]
    pairs = pairs_of(own)
    count = pairs.get("run.accumulate", "1")
    if not (count.isascii() and count.isdigit() and int(count)):
        raise UsageError(f'Setting "run.accumulate" is a number of batches, 1 or more; given "{count}".')
    return pairs.get("run.engine", "auto"), int(count)


def describe(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield each dotted key and its value as text."""
    for f in fields(settings):
        value = getattr(settings, f.name)
        if is_dataclass(value):
            yield from describe(value, f"{prefix}{f.name}.")
        else:
            yield f"{prefix}{f.name}", json.dumps(to_plain(value))


def brief(record: Any) -> str:
    """Summarise a record in a line, for ``__repr__``: shapes of arrays, truncated texts and lists."""
    return (
        f"{type(record).__name__}({', '.join(f'{f.name}={_brief(getattr(record, f.name))}' for f in fields(record))})"
    )


def _brief(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if hasattr(value, "dtype") and shape is not None:
        return f"{str(value.dtype).removeprefix('torch.')} {list(shape)}"
    if isinstance(value, tuple | list | Mapping) and len(value) > 4:
        return f"<{len(value)} entries>"
    return text if len(text := repr(value)) <= 80 else f"<{type(value).__name__}>"


def _override(settings: Any, changes: Sequence[tuple[list[str], str, str]]) -> Any:
    """Apply texts to settings; each has a path and the full key given by the user."""
    names = [f.name for f in fields(settings) if f.init]
    kinds = hints_of(type(settings))
    values: dict[str, Any] = {}
    deeper: dict[str, list[tuple[list[str], str, str]]] = {}
    for (name, *tail), text, key in changes:
        if name not in names:
            every = [k for k, _ in describe(settings)]
            raise UsageError(f'No setting "{key}".{suggest(key, [*every, *names])} Settings: {listing(every, 40)}.')
        if tail:
            deeper.setdefault(name, []).append((tail, text, key))
        else:
            values[name] = convert(_parse(text), kinds[name], key)
    for name, parts in deeper.items():
        inner, key = values.get(name, getattr(settings, name)), parts[0][2]
        if inner is None:
            part: Any = next((option for option in options_of(kinds[name]) if is_dataclass(option)), None)
            if part is None:
                raise UsageError(f'"{key}" has too many parts.')
            inner = part()
        if not is_dataclass(inner):
            raise UsageError(f'Setting "{name}" has no parts; given "{key}".')
        values[name] = _override(inner, parts)
    return replace(settings, **values) if values else settings


def _parse(text: str) -> Any:
    """Parse a word from the shell: JSON, a comma-separated list, or the word itself."""
    lowered = text.strip().lower()
    if lowered in ("none", "null", "true", "false"):
        return {"none": None, "null": None, "true": True, "false": False}[lowered]
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return [_parse(part) for part in text.split(",")] if "," in text else text


def options_of(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the single type."""
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def convert(value: Any, kind: Any, key: str) -> Any:
    """Convert a plain value to the type of a setting, or raise an error that names the setting."""
    results = (_try(value, option, key) for option in options_of(kind))
    result = next((result for result in results if result is not MISSING), MISSING)
    if result is MISSING:
        raise UsageError(f'Setting "{key}" must be {_words(kind)}; given {json.dumps(value, default=str)}.')
    return result


def _try(value: Any, kind: Any, key: str) -> Any:
    """Convert a value to a type that is not a union; return MISSING if it does not fit."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is dict and isinstance(value, Mapping):
        return {name: convert(part, args[1], f"{key}.{name}") for name, part in value.items()}
    if origin is tuple and value is not None:
        items = value if isinstance(value, list | tuple) else [value]
        kinds = [args[0]] * len(items) if args[-1] is Ellipsis else args
        if len(items) == len(kinds):
            return tuple(convert(v, k, key) for v, k in zip(items, kinds, strict=True))
    if origin is not None:
        return value if origin is Literal and value in args else MISSING
    if is_dataclass(kind) and isinstance(kind, type) and isinstance(value, Mapping):
        return from_plain(kind, value, f"{key}.")
    if kind is float and _is_number(value):
        return value if abs(value) < 2**53 else float(value)  # torch takes no whole number of any length
    plain = kind is not float and not (kind is int and isinstance(value, bool))
    return value if kind is Any or (plain and isinstance(value, kind)) else MISSING


def _is_number(value: Any) -> bool:
    """Return whether a value is a number in the range of floats, not NaN; infinity means no limit."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) <= sys.float_info.max or abs(value) == math.inf


def _words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text", NoneType: "none"}
    parts = []
    for option in options_of(kind):
        if get_origin(option) is Literal:
            parts.append("one of " + listing(str(a) for a in get_args(option)))
        elif get_origin(option) is dict:
            parts.append("a table of names and values")
        elif get_origin(option) is tuple:
            parts.append("a list of " + str(getattr(get_args(option)[0], "__name__", "values")) + " values")
        else:
            parts.append(names.get(option, f"settings of {getattr(option, '__name__', option)}"))
    return " or ".join(parts)


RANGES: dict[str, Callable[[float], bool]] = {
    "at least 1": lambda value: value >= 1,
    "0 or more": lambda value: value >= 0,
    "above 0": lambda value: value > 0,
    "from 0 to 1": lambda value: 0 <= value <= 1,
    "from 0 to below 1": lambda value: 0 <= value < 1,
    "above 0 and at most 1": lambda value: 0 < value <= 1,
}


def check_range(settings: Any, words: str, *names: str) -> None:
    """Raise an error unless these settings are in a range, one of ``RANGES``; None passes."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and not RANGES[words](value):
            raise UsageError(f'Setting "{name}" must be {words}; given {value}.')
