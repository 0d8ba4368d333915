"""The command line: one file per verb, and files for shared options, inputs and output.

This module imports nothing, so plug-ins can use options and output in any import order.
"""


def main() -> None:
    """Run the command line, see ``verbs.main``."""
    from labelwise.cli.verbs import main as run

    run()
