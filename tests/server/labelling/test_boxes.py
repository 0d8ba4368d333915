"""Boxes on the label page: each is an image of its own, with a thumbnail, and its labels are written and read back."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.label.actions import Action
from labelwise.server.gallery import small_image
from labelwise.server.labelling.export import export
from labelwise.server.labelling.project import open_project
from labelwise.support.errors import UsageError
from tests.server.labelling.photos import COLOURS


def detections(folder: Path) -> Path:
    """Two photos of three stripes each, and a box around each stripe."""
    images = []
    for name in ("a.png", "b.png"):
        photo = np.zeros((32, 96, 3), np.uint8)
        for place, colour in enumerate(COLOURS.values()):
            photo[:, 32 * place : 32 * place + 32] = colour
        Image.fromarray(photo).save(folder / name)
        boxes = [{"category": "1", "conf": 0.9, "bbox": [place / 3, 0, 1 / 3, 1]} for place in range(3)]
        images.append({"file": name, "detections": boxes})
    file = folder / "md.json"
    file.write_text(json.dumps({"images": images, "detection_categories": {"1": "animal"}}))
    return file


def test_boxes_are_labelled_shown_and_written(tmp_path: Path) -> None:
    with open_project(tmp_path / "p", detections(tmp_path), list(COLOURS)) as project:
        assert len(project.files) == 6
        for row, file in enumerate(project.files):
            thumbnail = np.asarray(Image.open(io.BytesIO(small_image(Path(file), 10**6))))
            wanted = list(COLOURS.values())[row % 3]
            assert abs(thumbnail.astype(int).mean((0, 1)) - wanted).max() < 6
            project.add([Action(kind="name", rows=(row,), label=list(COLOURS)[row % 3])])
        labels = project.session.labels()
        table = export(project.files, labels, tmp_path / "export", "csv") / "images.csv"
        with pytest.raises(UsageError, match="Boxes are written as csv"):
            export(project.files, labels, tmp_path / "export", "folders")
    data = lw.data.load(table, root=tmp_path, group="none")
    assert data.labels.names == tuple(sorted(COLOURS))
    for split in data.splits.values():
        for image, word in zip(
            split.images.read(range(len(split)), (3, 8, 8)), split.words(data.labels.names), strict=True
        ):
            assert abs(np.asarray(image).astype(int).mean((1, 2)) - COLOURS[word]).max() < 2
