import json
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.methods import METHODS, Indicator
from labelwise.support.errors import UsageError
from labelwise.support.settings import describe, from_plain, override, to_plain


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True, kw_only=True)
class Outer:
    count: int = 1
    flag: bool = False
    name: str = "x"
    steps: tuple[int, ...] = ()
    pair: tuple[float, float] | None = None
    inner: Inner = field(default_factory=Inner)
    extra: Inner | None = None


@given(
    st.builds(
        Outer,
        count=st.integers(),
        flag=st.booleans(),
        name=st.text(),
        steps=st.lists(st.integers(), max_size=4).map(tuple),
        pair=st.none() | st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
        inner=st.builds(Inner, rate=st.floats(allow_nan=False), kind=st.sampled_from(["a", "b"])),
        extra=st.none() | st.builds(Inner),
    )
)
def test_plain_and_back_is_the_same(settings: Outer) -> None:
    assert from_plain(Outer, json.loads(json.dumps(to_plain(settings)))) == settings


@pytest.mark.parametrize("method", METHODS.values())
def test_every_method_survives_json(method: type) -> None:
    assert from_plain(method, json.loads(json.dumps(to_plain(method())))) == method()


def test_words_from_the_shell() -> None:
    words = {"count": "3", "flag": "true", "name": "robin", "steps": "75,150", "pair": "0.5,1", "inner.rate": "2"}
    changed = override(Outer(), {**words, "inner.kind": "b", "extra.rate": "1e-3"})
    assert changed == Outer(
        count=3,
        flag=True,
        name="robin",
        steps=(75, 150),
        pair=(0.5, 1),
        inner=Inner(rate=2, kind="b"),
        extra=Inner(rate=1e-3),
    )
    assert override(changed, {"pair": "none", "steps": "9"}).steps == (9,)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"negativs": "3"}, 'No setting "negativs". Did you mean "negatives"?'),
        ({"optimizer.lrr": "3"}, 'No setting "optimizer.lrr"'),
        ({"negatives": "many"}, 'Setting "negatives" must be a whole number or none; given "many"'),
        ({"negatives": "1.5"}, "must be a whole number or none; given 1.5"),
        ({"sampling": "easy"}, 'must be one of uniform, hard; given "easy"'),
        ({"epochs.x": "1"}, 'Setting "epochs" has no parts'),
        ({"optimizer.nesterov": "1"}, "must be true or false; given 1"),
    ],
)
def test_wrong_words_are_refused(words: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as error:
        override(Indicator(), words)
    assert message in str(error.value)


def test_unknown_key_in_a_file_is_refused() -> None:
    with pytest.raises(UsageError, match=r'No setting "inner.rat"\. Did you mean "rate"'):
        from_plain(Outer, {"inner": {"rat": 1}})


def test_describe_lists_dotted_keys() -> None:
    assert dict(describe(Outer()))["inner.rate"] == "0.1"
    assert "optimizer.lr" in dict(describe(Indicator()))


def test_settings_that_belong_together_are_given_together() -> None:
    from labelwise.methods import Eszsl

    made = override(Eszsl(), {"image_penalty": "0.5", "label_penalty": "2"})
    assert (made.image_penalty, made.label_penalty) == (0.5, 2)
    with pytest.raises(UsageError, match="both penalties"):
        override(Eszsl(), {"image_penalty": "0.5"})
