"""The examples in the contracts' docstrings run."""

import doctest

from labelwise.core import calibration, scores
from tests.conftest import blobs
from tests.contract.subjects import trained
from tests.pixels_of import px


def test_examples_of_the_contracts_run() -> None:
    names = {"classifier": trained("softmax"), "images": px(blobs().split("test"))[:3]}
    for module in (calibration, scores):
        result = doctest.testmod(module, extraglobs=names)
        assert result.attempted
        assert not result.failed, module.__name__
