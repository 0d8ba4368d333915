import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from labelwise.core.segments import joined, segment_mean, spans


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 6)), max_size=8))
def test_spans_one_after_another(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = (torch.tensor([pair[i] for pair in pairs], dtype=torch.int64) for i in (0, 1))
    expected = [start + step for start, length in pairs for step in range(length)]
    assert spans(starts, lengths).tolist() == expected


@given(st.lists(st.integers(0, 4), max_size=12), st.integers(5, 7))
def test_the_mean_of_each_group(groups: list[int], count: int) -> None:
    values = torch.randn(len(groups), 3, dtype=torch.float64, generator=torch.Generator().manual_seed(len(groups)))
    expected = torch.zeros(count, 3, dtype=torch.float64)
    for group in set(groups):
        rows = [i for i, other in enumerate(groups) if other == group]
        expected[group] = sum(values[i] for i in rows) / len(rows)
    found = segment_mean(values, torch.tensor(groups, dtype=torch.int64), count)
    torch.testing.assert_close(found, expected)


def test_half_precision_is_summed_in_single() -> None:
    values = torch.full((1000, 1), 1.0078125, dtype=torch.bfloat16)  # its sum in bfloat16 would stop at 512
    found = segment_mean(values, torch.zeros(1000, dtype=torch.int64), 1)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, torch.tensor([[1.0078125]]))


def test_gradients() -> None:
    values = torch.randn(5, 2, dtype=torch.float64, requires_grad=True)
    groups = torch.tensor([0, 2, 2, 0, 0])
    assert torch.autograd.gradcheck(lambda x: segment_mean(x, groups, 4), values)


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=30))
def test_groups_are_those_of_scipy(pairs: list[tuple[int, int]]) -> None:
    one, other = torch.tensor(pairs, dtype=torch.int64).view(-1, 2).T
    edges = coo_array((np.ones(len(one)), (one.numpy(), other.numpy())), shape=(20, 20))
    assert joined(20, one, other).tolist() == connected_components(edges, directed=False)[1].tolist()


def test_a_long_chain_is_one_group() -> None:
    order = torch.randperm(5000, generator=torch.Generator().manual_seed(0))
    assert joined(5001, order[:-1], order[1:]).tolist() == [0] * 5000 + [1]
