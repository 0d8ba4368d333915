"""The command line: a file per verb, one of shared options, one that reads what verbs are given, one that prints results.

Nothing is imported here, so that plug-ins can share options and output, whichever of the two packages is imported first.
"""


def main() -> None:
    """Run the command line, see ``verbs.main``."""
    from labelwise.cli.verbs import main as run

    run()
