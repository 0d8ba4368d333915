import pytest


@pytest.fixture(autouse=True)
def _short_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labelwise.reporting.case.SECONDS", 0.01)
