"""What the papers plug into labelwise."""

import subprocess
import sys

from labelwise.cli.verbs import app
from labelwise_papers import plugin


def test_a_benchmark_is_known_in_python_without_the_shell() -> None:
    script = """
import sys
from labelwise.support.plugins import plugin_with

assert plugin_with("cifar10") is not None
assert "labelwise.cli" not in sys.modules
import labelwise.cli
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_its_verbs_are_verbs_of_the_shell() -> None:
    names = {command.callback.__name__ for command in app.registered_commands if command.callback}
    assert (
        {"analyse", "attack", "reproduce"}
        == {verb.__name__ for verbs in plugin.VERBS.values() for verb in verbs}
        <= names
    )
