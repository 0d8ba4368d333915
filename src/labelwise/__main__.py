"""``python -m labelwise``: the same as the command ``labelwise``."""

from labelwise.cli import main

if __name__ == "__main__":
    main()
