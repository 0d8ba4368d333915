"""Every registered method keeps every part of the contract."""

from dataclasses import replace

import pytest

from labelwise.core.checks import CHECKS, check_all
from labelwise.fitting.fit import fit
from labelwise.methods import METHODS
from labelwise.train.method import Run
from tests.conftest import quick, squares
from tests.contract.subjects import subject_of, trained
from tests.pixels_of import px


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS)
def test_method_keeps_contract(method: str, check: str) -> None:
    CHECKS[check](subject_of(method), trained(method))


@pytest.mark.parametrize("method", [name for name, kind in METHODS.items() if kind.multilabel])
def test_method_keeps_contract_where_several_labels_are_true(method: str) -> None:
    data = squares(120)
    subject = replace(
        subject_of(method),
        train=lambda: fit(data, quick(method, 5), Run(seed=4, device="cpu")),
        images=px(data.split("test"))[:12].numpy(),
    )
    assert subject.train().calibration.multilabel
    check_all(subject)
