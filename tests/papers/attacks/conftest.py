import pytest

from labelwise.methods import METHODS
from tests.papers.attacks.pixels import PixelsMethod


@pytest.fixture(autouse=True)
def _pixels_are_a_method(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks rebuild the model of a classifier by its method."""
    monkeypatch.setitem(METHODS, PixelsMethod.name, PixelsMethod)
