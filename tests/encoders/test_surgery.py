"""An ONNX file gets other outputs without the package onnx."""

import numpy as np
import pytest

from labelwise.encoders.graph import Cut, Operation, cut
from labelwise.encoders.onnx import open_session
from labelwise.support.errors import StoreError
from tests.encoders.samples import pixels, tiny_graph

INNER = Cut(
    outputs={"first": (8, 8), "turned": (8, 5, 8)},
    constants={"zero": 0},
    operations=(
        Operation(kind="Gather", inputs=("maps", "zero"), output="first", attributes={"axis": 1}),
        Operation(kind="Transpose", inputs=("maps",), output="turned", attributes={"perm": (0, 2, 1, 3)}),
    ),
)


def test_inner_tensors_become_the_only_outputs() -> None:
    content, images = tiny_graph(), pixels(3)
    (maps,) = open_session(content).run(["maps"], {"images": images})
    session = open_session(cut(content, INNER))
    assert [each.name for each in session.get_outputs()] == ["first", "turned"]
    first, turned = session.run(None, {"images": images})
    assert np.array_equal(first, maps[:, 0])
    assert np.array_equal(turned, maps.transpose(0, 2, 1, 3))


def test_the_package_onnx_finds_nothing_wrong() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(cut(tiny_graph(), INNER))
    onnx.checker.check_model(model, full_check=True)
    assert [each.name for each in model.graph.output] == ["first", "turned"]


@pytest.mark.parametrize("content", [b"\x3a\xff\xff\xff\x0f", b"\x3f", b"\xff" * 12, tiny_graph()[:-3]])
def test_what_is_no_onnx_file_is_refused(content: bytes) -> None:
    with pytest.raises(StoreError, match="not ONNX, or it is damaged"):
        cut(content, INNER)
