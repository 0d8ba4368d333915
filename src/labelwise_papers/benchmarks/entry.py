"""What is known about a benchmark before any of it is read: size, licence, citation, where it comes from."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Remote:
    """One file at an official address.

    Attributes:
        url: where it lies.
        file: what it is called on disk, inside the folder of the benchmark.
        megabytes: its size; None where it is not known.
        md5: its published checksum; None where none is published.
        unpack: True for an archive that is unpacked after it has arrived.
    """

    url: str
    file: str
    megabytes: float | None = None
    md5: str | None = None
    unpack: bool = True


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A benchmark by name.

    Attributes:
        name: the word that ``load_benchmark`` takes.
        title: its full name.
        what: images, features or audio.
        classes: how many labels it has.
        train: training images as the papers state them; None where there is no fixed number.
        test: test images, likewise.
        side: the side in pixels that pictures are brought to, or samples per second of sound, unless asked otherwise.
        licence: the terms in a few words.
        citation: one line.
        homepage: the official page.
        files: what has to lie in its folder, as the official archives hold it.
        remotes: files that can be downloaded without registering; empty where that is not possible.
        get: what to do by hand where ``remotes`` is empty.
        packs: packed files that serve in place of the official layout, relative to the root.
        folder: its folder in the root; sets made from the same files share one.
        protocols: other ways to divide or label it; the first is the default.
        notes: the kind of pictures, and what differs between the papers and the files.
        papers: the methods whose papers use it.
    """

    name: str
    title: str
    what: str = "images"
    classes: int
    train: int | None
    test: int | None
    side: int
    licence: str
    citation: str
    homepage: str
    files: tuple[str, ...]
    remotes: tuple[Remote, ...] = ()
    get: str = ""
    packs: tuple[str, ...] = ()
    folder: str
    protocols: tuple[str, ...] = ("standard",)
    notes: str = ""
    papers: tuple[str, ...] = ()

    @property
    def megabytes(self) -> float | None:
        """The size of all downloads together; None where it is not known."""
        sizes = [remote.megabytes for remote in self.remotes]
        known = [size for size in sizes if size is not None]
        return sum(known) if known and len(known) == len(sizes) else None
