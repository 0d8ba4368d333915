"""Write answers as a CSV file that Timelapse imports: RootFolder, File, RelativePath, and the fields Label and Probability.

Timelapse finds an image by RelativePath and File, and refuses a file with fields that its template lacks. A column DateTime would
replace times that people have corrected there, so there is none.
"""

import csv
import io
import os
from collections.abc import Iterable
from pathlib import Path

from labelwise.images.formats.annotations import path_below
from labelwise.support.writable import write_file

COLUMNS = ("RootFolder", "File", "RelativePath", "Label", "Probability")


def write_timelapse(file: Path, answers: Iterable[tuple[str, str, float | None]], home: Path) -> None:
    """Write the label and the probability of each image; ``home`` is the root folder of Timelapse."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for image, label, probability in answers:
        folder, name = os.path.split(path_below(image, home))
        number = "" if probability is None else f"{probability:.4f}"
        writer.writerow((home.name, name, folder.replace("/", "\\"), label, number))
    write_file(file, text.getvalue().encode("utf-8", "surrogateescape"))
