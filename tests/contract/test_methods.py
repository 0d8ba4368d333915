"""Every registered method keeps every part of the contract."""

import pytest

from labelwise.checks import CHECKS, check_all
from labelwise.methods import METHODS
from tests.contract.subjects import subject_of, trained


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("method", METHODS)
def test_method_keeps_contract(method: str, check: str) -> None:
    CHECKS[check](subject_of(method), trained(method))


def test_check_all_runs_every_check() -> None:
    check_all(subject_of("softmax"))
