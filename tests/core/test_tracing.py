"""A traced formula gives in a graph what NumPy gives, for any number of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labelwise.core.arrays import linear_scores, logit, root_features, sigmoid, softmax, top_columns
from labelwise.core.tracing import Graph, Traced
from labelwise.encoders.graph import IR_VERSION, OPSET
from labelwise.encoders.onnx import open_session
from labelwise.support.errors import UnsupportedError
from labelwise.support.rows import unit_rows

onnx = pytest.importorskip("onnx")
DRAWS = np.random.default_rng(0)
WIDTH = 6
TABLE = DRAWS.normal(size=(4, WIDTH)).astype(np.float32)
ROWS = DRAWS.normal(size=(4, WIDTH + 1)).astype(np.float32)
FORMULAS: dict[str, Callable[[Any], Any]] = {
    "unit rows": unit_rows,
    "root features": root_features,
    "linear scores": lambda x: linear_scores(x, ROWS),
    "softmax": softmax,
    "sigmoid": lambda x: sigmoid(40 * x),
    "logit": lambda x: logit(sigmoid(x.max(1).astype(np.float64)), 1e-3),
    "every pair": lambda x: np.where((TABLE[:, None] + x) > 0, TABLE[:, None] + x, 0.1).sum(2).T,
    "columns": lambda x: np.concatenate([x[:, 4:], x[:, ::-1], x[:, [2, 0]], x[:, -1][:, None]], 1),
    "third largest": lambda x: np.partition(x, -3, axis=1)[:, -3],
    "look-up": lambda x: (np.arange(WIDTH) == x.argmax(1)[:, None]) @ ROWS[0, :WIDTH],
    "truth": lambda x: (x[:, 0] > 0)[:, None] & ~(x >= 0.5),
    "squares": lambda x: np.einsum("...d,...d->...", x, x) ** 0.5 - abs(x).mean(1) + np.arctan(x[:, 1]),
}


def run(formula: Callable[[Any], Any], images: Any) -> Any:
    """Return what the graph of a formula, traced with three rows, makes of images."""
    graph = Graph()
    result = formula(Traced(graph, "x", DRAWS.normal(size=(3, WIDTH)).astype(np.float32)))
    result.name_output("y")
    kind = onnx.helper.np_dtype_to_tensor_dtype(result.dtype)
    ends = (("x", onnx.TensorProto.FLOAT, ["n", WIDTH]), ("y", kind, None))
    given, wanted = (onnx.helper.make_tensor_value_info(*end) for end in ends)
    whole = onnx.helper.make_graph(graph.nodes, "formula", [given], [wanted], graph.constants)
    opsets = [onnx.helper.make_opsetid("", OPSET)]
    model = onnx.helper.make_model(whole, opset_imports=opsets, ir_version=IR_VERSION)
    return open_session(model.SerializeToString()).run(["y"], {"x": images})[0]


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("count", [1, 8])
def test_a_graph_gives_what_numpy_gives(name: str, count: int) -> None:
    images = DRAWS.normal(size=(count, WIDTH)).astype(np.float32)
    wanted = FORMULAS[name](images)
    given = run(FORMULAS[name], images)
    assert given.dtype == wanted.dtype
    np.testing.assert_allclose(given, wanted, rtol=1e-5, atol=1e-5)


def test_what_counts_or_chooses_rows_is_refused() -> None:
    images: Any = Traced(Graph(), "x", np.ones((3, WIDTH), np.float32))
    with pytest.raises(UnsupportedError, match="cannot choose among them"):
        images[1:]
    with pytest.raises(UnsupportedError, match="Cannot export a formula with argsort"):
        top_columns(images, 1)
    with pytest.raises(UnsupportedError, match="Cannot export a formula with tan"):
        np.tan(images)
