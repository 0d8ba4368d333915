"""Scores of pairs without torch against the literal ones: values, tiles, memory."""

import tracemalloc
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from labelwise.core.arrays import Array
from labelwise.methods.prototype import head
from labelwise.methods.prototype.head import PairScore, tiles

Symmetric = Literal["none", "max", "mean"]


def score(d: int, h: int, layers: int, symmetric: Symmetric = "none", seed: int = 0) -> PairScore:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return np.asarray(rng.normal(size=shape), np.float32)

    middle = (normal(h, h), normal(h)) if layers == 2 else (None, None)
    return PairScore(
        first_weight=normal(h, d), second_weight=normal(h, d), bias=normal(h),
        middle_weight=middle[0], middle_bias=middle[1],
        output_weight=normal(h), output_bias=normal(), symmetric=symmetric,
    )  # fmt: skip


def leaky(x: Array) -> Array:
    return np.where(x > 0, x, 0.1 * x)


def literal(s: PairScore, a: Array, b: Array) -> Array:
    """S as it is written, one pair after another."""
    out = np.zeros((len(a), len(b)))
    assert s.first_weight is not None
    assert s.second_weight is not None
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            hidden = leaky(s.first_weight @ x + s.second_weight @ y + s.bias)
            if s.middle_weight is not None:
                hidden = leaky(s.middle_weight @ hidden + s.middle_bias)
            out[i, j] = hidden @ s.output_weight + s.output_bias
    return out


@given(
    n=st.integers(0, 6), m=st.integers(0, 6), h=st.integers(1, 6), layers=st.integers(1, 2),
    way=st.sampled_from(["none", "max", "mean"]), tile=st.sampled_from([1, 20, 2**19]), seed=st.integers(0, 99),
)  # fmt: skip
def test_scores_are_the_literal_ones(n: int, m: int, h: int, layers: int, way: Symmetric, tile: int, seed: int) -> None:
    s, rng = score(4, h, layers, way, seed), np.random.default_rng(seed)
    a, b = (rng.normal(size=(count, 4)).astype(np.float32) for count in (n, m))
    there, back = literal(s, a, b), literal(s, b, a).T
    wanted = {"none": there, "max": np.maximum(there, back), "mean": (there + back) / 2}[way]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "TILE", tile)
        np.testing.assert_allclose(s.pairs(s.first(a), s.second(b)), wanted, rtol=1e-4, atol=1e-4)
        few = min(n, m)
        np.testing.assert_allclose(s.matched(a[:few], b[:few]), wanted.diagonal(), rtol=1e-4, atol=1e-4)


@given(n=st.integers(0, 40), m=st.integers(0, 40), h=st.integers(1, 64), room=st.integers(1, 2000))
def test_tiles_cover_every_pair_once(n: int, m: int, h: int, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "TILE", room)
        seen = np.zeros((n, m))
        for rows, columns in tiles(n, m, h):
            part = seen[rows, columns]
            assert part.size * h <= max(room, h)
            part += 1
    assert (seen == 1).all()


@pytest.mark.parametrize("layers", [1, 2])
def test_memory_is_bounded(layers: int) -> None:
    s, rng = score(8, 64, layers), np.random.default_rng(0)
    a, b = (rng.normal(size=(400, 8)).astype(np.float32) for _ in range(2))
    first, second = s.first(a), s.second(b)
    tracemalloc.start()
    s.pairs(first, second)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 400 * 400 * 64 * 4 / 2, "not all hidden vectors at once"
