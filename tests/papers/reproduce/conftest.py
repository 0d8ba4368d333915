import gc

import pytest


@pytest.fixture(autouse=True)
def _what_is_there_stays() -> None:
    """Each cell ends with a garbage collection, which need not walk what other tests imported."""
    gc.freeze()
