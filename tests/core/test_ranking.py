import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, f1_score

from labelwise.core.metrics import average_precisions, f1_scores


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_average_precision_equals_scikit_learn(n: int, k: int, levels: int, seed: int) -> None:
    """Few levels make many ties."""
    random = np.random.default_rng(seed)
    scores = random.integers(levels, size=(n, k)).astype(np.float32)
    truths = random.random((n, k)) < 0.4
    found = average_precisions(scores, truths)
    for label in range(k):
        if truths[:, label].any():
            wanted = average_precision_score(truths[:, label], scores[:, label])
            assert float(found[label]) == pytest.approx(wanted)
        else:
            assert math.isnan(float(found[label]))


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_f1_equals_scikit_learn(n: int, k: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    yes, truths = (random.random((n, k)) < share for share in (0.3, 0.4))
    micro, each = f1_scores(yes, truths)
    as_columns = [table.astype(int) for table in (truths, yes)]
    for label in range(k):
        wanted = f1_score(as_columns[0][:, label], as_columns[1][:, label], zero_division=0)
        assert float(each[label]) == pytest.approx(wanted)
    assert micro == pytest.approx(f1_score(as_columns[0].ravel(), as_columns[1].ravel(), zero_division=0))
