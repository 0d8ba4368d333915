"""Public names are imported on first use, and none that a module names is missing."""

import subprocess
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("module", ["labelwise", "labelwise.data", "labelwise.methods"])
def test_every_public_name_is_there(module: str) -> None:
    home = import_module(module)
    assert len(home.__all__) > 5
    assert dir(home) == sorted(home.__all__)
    for name in home.__all__:
        assert getattr(home, name) is not None
    with pytest.raises(AttributeError, match=f"module {module} has no attribute 'nothing'"):
        home.nothing  # noqa: B018


def test_nothing_is_imported_before_it_is_used() -> None:
    code = "import sys, labelwise as lw; lw.data, dir(lw); assert not {'torch', 'numpy', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
