"""Folders that bite: what is no file, loops, names of other encodings."""

import os
import socket
from pathlib import Path

from PIL import Image

from tests.hostile.pictures import encoded

ODD = os.fsdecode(b"caf\xe9 \xff.png")  # Latin-1, as a disk of another machine has it


def biting_folder(root: Path) -> list[str]:
    """Fill two label folders with pictures and with all that hangs a reader; return the names that are pictures."""
    for i, label in enumerate(("owl", "wren")):
        home = root / label
        home.mkdir(parents=True)
        for name in ("1.png", "2.png", "ünï.png", ODD):
            (home / name).write_bytes(encoded(Image.new("RGB", (12, 12), (200 * i, 90, len(name))), "PNG"))
        os.mkfifo(home / "pipe.png")
        os.mkfifo(home / "pipe.wav")
        with socket.socket(socket.AF_UNIX) as listener:
            old = os.getcwd()
            os.chdir(home)  # the path of a socket is short
            try:
                listener.bind("socket.jpg")
            finally:
                os.chdir(old)
        (home / "endless.png").symlink_to("/dev/zero")
        (home / "log.jpg").symlink_to("/dev/tty")
        with (home / "vast.png").open("wb") as file:
            file.truncate(2**40)
        (home / "link.png").symlink_to("1.png")
        (home / "gone.png").symlink_to("nowhere.png")
        (home / "ring.png").symlink_to("ring.png")
        (home / "ring").symlink_to("ring")
        (home / "up").symlink_to(root)
        (home / "again").symlink_to(home)
    (root / "self").symlink_to("self")
    return ["1.png", "2.png", "ünï.png", ODD, "link.png"]
