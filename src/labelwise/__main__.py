"""``python -m labelwise``: the same as the command ``labelwise``."""

from labelwise.cli import command

if __name__ == "__main__":
    command()
