"""Downloads of observations as seeds: one file that is changed, and the files next to it that are not."""

import gzip
import io
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from labelwise.images.formats.annotations import rows_of
from labelwise.images.formats.find import read_annotations

Seeds = Callable[[], list[bytes]]
SIGHTINGS = "gbifID\tspecies\tgenus\tfamily\n1000\tA b\tA\tAidae\n1001\tC d\tC\tAidae\n1002\tC\tC\tAidae\n"
EXPORT = """id,image_url,scientific_name,taxon_genus_name
1000,https://a.org/1000.jpg,A b,A
1001,https://a.org/photos/2000/original.jpg,"C d",C
"""
PHOTOS = "photo_id\tphoto_uuid\tobservation_uuid\n1000\tx\tu0\n1001\ty\tu1\n"
OBSERVATIONS = "observation_uuid\ttaxon_id\nu0\t3\nu1\t4\n"
TAXA = "taxon_id\tancestry\trank\tname\n1\t\tclass\tAves\n2\t1\tgenus\tA\n3\t1/2\tspecies\tA b\n4\t1\tspecies\tC d\n"
META = (
    '<a xmlns="http://rs.tdwg.org/dwc/text/"><core ignoreHeaderLines="1" fieldsTerminatedBy="\\t" fieldsEnclosedBy=""><files>'
    '<location>data.txt</location></files><id index="0"/><field index="1" term="x/species"/></core></a>'
)


def photo() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3)).save(stream, "PNG")
    return stream.getvalue()


def read_annotated(file: Path) -> None:
    rows_of(read_annotations(file))


def below(name: str, others: Mapping[str, bytes] | None = None) -> Callable[[Path], None]:
    """Return a reader of a folder in which the file has this name, and other files and photos are next to it."""
    files = {**(others or {}), **{f"{home}100{i}.png": photo() for i in range(3) for home in ("", "images/", "data/")}}

    def read(file: Path) -> None:
        home = file.parent / "home"
        for place, content in files.items() if not home.exists() else ():
            (home / place).parent.mkdir(parents=True, exist_ok=True)
            (home / place).write_bytes(content)
        file.replace(home / name)
        read_annotated(home)

    return read


DOWNLOADS: dict[str, tuple[str, Seeds, Callable[[Path], None]]] = {
    "GBIF": (".txt", lambda: [SIGHTINGS.encode()], below("occurrence.txt", {"multimedia.txt": b"gbifID\tidentifier\n1000\tx\n"})),
    "meta.xml": (".xml", lambda: [META.encode()], below("meta.xml", {"data.txt": SIGHTINGS.encode()})),
    "iNaturalist": (".csv", lambda: [EXPORT.encode()], below("observations.csv")),
    "iNaturalist taxa": (".gz", lambda: [gzip.compress(TAXA.encode())], below("taxa.csv.gz", {"photos.csv": PHOTOS.encode(), "observations.csv": OBSERVATIONS.encode()})),
}  # fmt: skip
