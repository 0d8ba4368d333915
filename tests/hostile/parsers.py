"""Every parser that reads a user's file: files to begin with, and how one is read. Only errors for people may come out of it."""

import asyncio
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import torch
from PIL import Image

from labelwise.core.load import load
from labelwise.images.decode.decoding import Frame, UnreadableError
from labelwise.images.describe.knowledge_files import read_labels
from labelwise.images.describe.words import read_vectors
from labelwise.images.file_images import FileImages
from labelwise.images.formats.annotations import rows_of
from labelwise.images.formats.find import read_annotations
from labelwise.images.formats.packed import packed_rows
from labelwise.images.images import read_all
from labelwise.images.sources.archives import zip_rows
from labelwise.images.sources.build import readable
from labelwise.images.sources.csv_files import read_csv
from labelwise.images.sources.image_tables import table
from labelwise.images.sources.npz_files import read_npy_matrix
from labelwise.images.sources.packs import pack
from labelwise.images.sources.shards import shards
from labelwise.images.sources.videos import frames
from labelwise.support.errors import LabelwiseError, UsageError
from labelwise.support.files import read_tensors, write_tensors
from labelwise.train.networks.weights import read_weights
from labelwise_papers.benchmarks.mat_files import read_mat
from labelwise_papers.sound.wav_files import read_sounds, read_wav
from tests import once
from tests.changed import description
from tests.hostile import corpus
from tests.hostile.downloads import DOWNLOADS
from tests.images.decode.videos import picture, write_video
from tests.images.samples import decode
from tests.images.tar_shards import write_tar

FEATURES = "f0,f1,label,split\n" + "1,2,a,train\n3,4,b,train\n5,6,a,test\n"
KNOWN = {
    "labels": {
        "a": {"vector": [1, 0.5], "texts": ["an a"], "order": 1},
        "b": {"vector": [0, 1], "texts": ["b"], "order": 2},
    }
}
TOML = 'attributes = ["x", "y"]\n[labels."barn owl"]\nvector = [1, 2.5]\ntext = "a bird"\nshare = 0.25\n[labels.b]\nvector = [0, 1]\ntext = "b"\nshare = 0.75\n'


@dataclass(frozen=True)
class Parser:
    """How a kind of file is read."""

    suffix: str
    seeds: Callable[[], list[bytes]]
    read: Callable[[Path], object]

    def accepts(self, content: bytes, folder: Path) -> bool:
        """Whether a file of this content is read or refused in words; any other exception comes out."""
        file = folder / f"file{self.suffix}"
        file.write_bytes(content)
        try:
            self.read(file)
        except LabelwiseError:
            return False
        return True


def saved(write: Callable[[Any], object]) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


def from_file(write: Callable[[Path], object], suffix: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder, f"file{suffix}"))
        return Path(folder, f"file{suffix}").read_bytes()


def pictures() -> list[bytes]:
    picture = Image.fromarray(np.arange(16 * 16 * 3, dtype=np.uint8).reshape(16, 16, 3))
    kinds = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
    return [saved(lambda stream, kind=kind: picture.save(stream, kind)) for kind in kinds]  # type: ignore[misc]


def read_picture(file: Path) -> object:
    try:
        return decode(file.read_bytes(), Frame(8, 8, 3))
    except UnreadableError as error:
        raise UsageError(str(error)) from None


def packs() -> list[bytes]:
    x, y = np.ones((4, 3), np.float32), np.array(["a", "b", "a", "b"])
    images = np.zeros((4, 8, 8, 3), np.uint8)
    picture = pictures()[0]
    data, ends = np.frombuffer(picture * 4, np.uint8), np.arange(5) * len(picture)
    return [
        saved(lambda stream: np.savez(stream, features=x, labels=y)),
        saved(lambda stream: np.savez_compressed(stream, images=images, labels=y, split=np.array([0, 0, 1, 1]))),
        saved(lambda stream: np.savez(stream, data=data, offsets=ends, labels=y)),
    ]


def arrays() -> list[bytes]:
    return [saved(lambda s, k=k: np.save(s, np.ones((3, 2), k))) for k in ("<f4", ">f8", "|u1", "<i2")]  # type: ignore[misc]


def parquets() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = pa.table({"f0": [1.0, 2.0, 3.0], "f1": [1, 2, 3], "label": ["a", "b", "a"], "text": ["x", None, "y"]})
    kinds = ("none", "snappy", "zstd")
    return [saved(lambda s, k=k: pq.write_table(columns, s, compression=k)) for k in kinds]  # type: ignore[misc]


def tars() -> list[bytes]:
    about = json.dumps({"label": "b", "split": "train", "texts": ["x"]}).encode()
    members = {
        "a.png": pictures()[0],
        "a.json": about.replace(b'"b"', b'"a"'),
        "b/b.jpg": pictures()[1],
        "b/b.json": about,
        "b/b.txt": b"y",
    }
    plain = from_file(lambda file: write_tar(file, members), ".tar")
    return [
        plain,
        from_file(lambda file: write_tar(file, {f"{'long' * 60}/{name}": x for name, x in members.items()}), ".tar"),
    ]


def annotated_tars() -> list[bytes]:
    members = {"x/metadata.csv": b"file_name,label\na.png,owl\n", "x/a.png": pictures()[0]}
    return [from_file(lambda file: write_tar(file, members), ".tar")]


def picture_parquets() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    cells = [{"bytes": one, "path": "x"} for one in pictures()[:3]]
    tables = [
        pa.table({"image": cells, "label": [0, 1, 0]}),
        pa.table({"picture": pictures()[:2], "label": ["a", "b"]}),
    ]
    return [saved(lambda s, t=t: pq.write_table(t, s, row_group_size=2)) for t in tables]  # type: ignore[misc]


def read_shards(file: Path) -> None:
    """Index and pictures, as ``fit`` reads them."""
    data = readable(shards(file, size=4))
    for split in data.splits.values():
        read_all(split.images, (3, 4, 4))


def tensors() -> list[bytes]:
    values = {"conv1.weight": torch.ones(2, 3), "n": torch.arange(4)}
    return [from_file(lambda file: write_tensors(file, values, {"kind": 1}), ".safetensors")]


def read_both(file: Path) -> None:
    with suppress(LabelwiseError):
        read_weights(file)
    read_tensors(file)


def mats() -> list[bytes]:
    from scipy.io import savemat

    cells = np.array([["a"], ["b"]], dtype=object)
    fields = {"features": np.ones((3, 2)), "names": cells, "s": {"x": 1.0}}
    return [saved(lambda s, z=z: savemat(s, fields, do_compression=z)) for z in (False, True)]  # type: ignore[misc]


def sounds() -> list[bytes]:
    return [from_file(lambda file: corpus.wav(file, bytes(range(100)), channels=2), ".wav")]


def read_sound(file: Path) -> None:
    read_wav(file)
    read_sounds([file], 16_000, 100)


def words() -> list[bytes]:
    return [b"2 3\none 1 2 3\ntwo 4 5 6\n", b"one 1 2 3\nbarn_owl 4 5 6\n"]


def binary_words() -> list[bytes]:
    return [b"2 3\none " + np.ones(3, "<f4").tobytes() + b"\ntwo " + np.ones(3, "<f4").tobytes() + b"\n"]


@once.once
def model_folder() -> str:
    """The folder of a classifier that was trained for a moment."""
    import labelwise as lw
    from tests.conftest import blobs, quick

    folder = once.folder() / "small.lw"
    lw.save(lw.fit(blobs(), quick("softmax", epochs=1), lw.Run(device="cpu")), folder)
    return str(folder)


def read_model(file: Path) -> object:
    """A saved classifier whose description is this file."""
    for piece in Path(model_folder()).iterdir():
        if piece.name != "classifier.json" and not (target := file.parent / piece.name).exists():
            target.write_bytes(piece.read_bytes())
    file.replace(file.with_name("classifier.json"))
    return load(file.parent)


def forms() -> list[bytes]:
    part = b'--x\r\nContent-Disposition: form-data; name="images"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    return [part + pictures()[0] + b"\r\n--x--\r\n", json.dumps({"label": "a", "texts": ["x"]}).encode()]


def annotations() -> list[bytes]:
    image = {"id": 1, "file_name": "a.png", "width": 9, "height": 9}
    box = {"image_id": 1, "category_id": 2, "bbox": [1, 2, 3, 4]}
    coco = {"images": [image], "annotations": [box], "categories": [{"id": 2, "name": "owl"}]}
    found = {"category": "1", "conf": 0.9, "bbox": [0.1, 0.2, 0.3, 0.4], "classifications": [["0", 0.5]]}
    kinds = {"detection_categories": {"1": "animal"}, "classification_categories": {"0": "owl"}}
    net = {"filepath": "a.png", "detections": [{**found, "label": "animal"}], "prediction": "0;a;b;c;d;e;owl"}
    documents = [coco, {**kinds, "images": [{"file": "a.png", "detections": [found]}]}, {"predictions": [net]}]
    return [json.dumps(each).encode() for each in documents]


def exports() -> list[bytes]:
    """Files of programs in which people label images: Label Studio (both forms), and FiftyOne (labels.json, samples.json)."""
    shape = {"x": 1.0, "y": 2.0, "width": 3.0, "height": 4.0}
    rectangle = {"type": "rectanglelabels", "value": {**shape, "rectanglelabels": ["owl"]}}
    results = [{"type": "choices", "value": {"choices": ["owl"]}}, rectangle]
    task = {"data": {"image": "/data/local-files/?d=a.png"}, "annotations": [{"result": results}]}
    least = {"image": "https://x.org/a.png", "choice": "owl", "label": [{**shape, "rectanglelabels": ["owl"]}]}
    named = {
        "classes": ["owl"],
        "labels": {"a": 0, "b": [{"label": 0, "bounding_box": [0.1, 0.2, 0.3, 0.4]}], "c": None},
    }
    detections = {"_cls": "Detections", "detections": [{"label": "owl", "bounding_box": [0.1, 0.2, 0.3, 0.4]}]}
    samples = [
        {"filepath": "a.png", "tags": ["train"], "ground_truth": {"_cls": "Classification", "label": "owl"}},
        {"filepath": "b.png", "tags": ["test"], "boxes": detections},
    ]
    return [json.dumps(each).encode() for each in ([task], [least], named, {"samples": samples})]


def read_export(file: Path) -> None:
    (file.parent / "data").mkdir(exist_ok=True)
    read_annotated(file)


def cvat_files() -> list[bytes]:
    box = '<box label="owl" xtl="1" ytl="2" xbr="3" ybr="4"/><polygon label="owl" points="1,2;3,4;5,2"/>'
    images = f'<image name="a.png" subset="train">{box}</image><image name="b.png"><tag label="owl"/></image>'
    return [f"<annotations>{images}</annotations>".encode()]


CUT = b"\n%%\n"  # between the files of one input


def tables_of_traps() -> list[bytes]:
    media = b"mediaID,deploymentID,timestamp,filePath\nm,d,2026-05-01T10:00:00Z,a.png\n"
    columns = b"mediaID,deploymentID,eventID,eventStart,eventEnd,observationType,scientificName,bboxX,bboxY,bboxWidth,bboxHeight\n"
    event = b",d,e,2026-05-01T09:00:00Z,2026-05-01T11:00:00Z,animal,owl,,,,\n"
    return [CUT.join([columns + event + b"m,d,e,,,animal,owl,0.1,0.2,0.3,0.4\n", media, b"deploymentID\nd\n"])]


def read_traps(file: Path) -> None:
    names = ("observations.csv", "media.csv", "deployments.csv")
    for name, content in zip(names, file.read_bytes().split(CUT), strict=False):
        file.with_name(name).write_bytes(content)
    file.unlink()
    read_annotated(file.parent)


def yolo_files() -> list[bytes]:
    boxes = b"0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.2 0.1 0.3 0.4\n"
    kinds = (b"names:\n  0: owl\n  1: wren # a bird\n", b"names: ['owl', wren]\n", b"names:\n- owl\n- wren\n")
    return [CUT.join([names, boxes]) for names in kinds]


def read_yolo(file: Path) -> None:
    for place in ("images/a.png", "labels/a.txt"):
        (file.parent / place).parent.mkdir(exist_ok=True)
    names, _, boxes = file.read_bytes().partition(CUT)
    file.with_name("data.yaml").write_bytes(names)
    (file.parent / "labels" / "a.txt").write_bytes(boxes)
    (file.parent / "images" / "a.png").touch()
    file.unlink()
    read_annotated(file.parent)


def voc_files() -> list[bytes]:
    box = "<bndbox><xmin>1</xmin><ymin>2</ymin><xmax>3</xmax><ymax>4</ymax></bndbox>"
    return [
        f"<annotation><filename>a.png</filename><object><name>owl</name>{box}</object></annotation>".encode(),
    ]


def read_annotated(file: Path) -> None:
    rows_of(read_annotations(file))


def zips() -> list[bytes]:
    def fill(stream: Any) -> None:
        with ZipFile(stream, "w", ZIP_DEFLATED) as archive:
            for name in ("a/1.png", "b/2.png"):
                archive.writestr(name, pictures()[0])

    return [saved(fill)]


def packed() -> list[bytes]:
    """Annotations in a zip file."""

    def fill(stream: Any) -> None:
        with ZipFile(stream, "w") as archive:
            archive.writestr("x/metadata.csv", "file_name,label\na.png,owl\nb.png,wren\n")
            for name in ("x/a.png", "x/b.png"):
                archive.writestr(name, pictures()[0])

    return [saved(fill)]


def read_packed(file: Path) -> None:
    rows = packed_rows(file, 4, None)
    if rows is not None and rows.images is not None:
        rows.images.read(range(len(rows)), (3, 4, 4))


def read_zip(file: Path) -> None:
    """Index and pictures; damaged ones are no error."""
    images = zip_rows(file, 4).images
    assert images is not None
    images.read(range(len(images)), (3, 4, 4))


def read_lines(file: Path) -> None:
    read_annotated(file.replace(file.with_name("metadata.jsonl")))


def read_body(file: Path) -> None:
    """A body as both kinds that teach: a form, and a document."""
    from starlette.requests import Request

    from labelwise.server.bodies import read_examples
    from labelwise.server.errors import HTTPError
    from labelwise.server.settings import Service

    body, refused = file.read_bytes(), 0
    for kind in (b"multipart/form-data; boundary=x", b"application/json"):

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": body, "more_body": False}

        scope = {"type": "http", "method": "POST", "headers": [(b"content-type", kind)], "query_string": b""}
        try:
            asyncio.run(read_examples(Request(scope, receive), Service(model=file)))
        except HTTPError:
            refused += 1
    if refused == 2:
        raise UsageError("refused")


def videos() -> list[bytes]:
    """Return short videos; none without the package that reads them."""
    if not find_spec("av"):
        return [b""]
    return [
        from_file(partial(write_video, pictures=[picture(1)] * 3, codec="mpeg4"), suffix) for suffix in (".mp4", ".avi")
    ]


def read_video(file: Path) -> None:
    addresses = frames(file)[:3]
    with suppress(UnreadableError):
        read_all(FileImages(addresses), (3, 8, 8))


PARSERS: dict[str, Parser] = {
    "image": Parser("", pictures, read_picture),
    "video": Parser(".mp4", videos, read_video),
    "csv": Parser(".csv", lambda: [FEATURES.encode(), FEATURES.replace(",", ";").encode()], read_csv),
    "table": Parser(".csv", lambda: [FEATURES.encode(), b"f0,labels\n1,a;b\n2,b\n3,\n"], table),
    "parquet": Parser(".parquet", parquets, table),
    "tar": Parser(".tar", tars, read_shards),
    "parquet of pictures": Parser(".parquet", picture_parquets, read_shards),
    "npz": Parser(".npz", packs, pack),
    "npy": Parser(".npy", arrays, read_npy_matrix),
    "mat": Parser(".mat", mats, read_mat),
    "safetensors": Parser(".safetensors", tensors, read_both),
    "labels.json": Parser(".json", lambda: [json.dumps(KNOWN).encode()], read_labels),
    "labels.toml": Parser(".toml", lambda: [TOML.encode()], read_labels),
    "labels.csv": Parser(".csv", lambda: [b"label,text,x,order\na,one,1,1\nb,two,0,2\n", b"label,parent,family\na,x,y\nb,x,y\n", b",a,b\na,1,0\nb,0,1\n"], read_labels),
    "labels.txt": Parser(".txt", lambda: [b"low\nhigh\n"], read_labels),
    "words": Parser(".txt", words, read_vectors),
    "words.gz": Parser(".txt.gz", lambda: [gzip.compress(one) for one in words()], read_vectors),
    "words.bin": Parser(".bin", binary_words, read_vectors),
    "wav": Parser(".wav", sounds, read_sound),
    "zip": Parser(".zip", zips, read_zip),
    "annotations.json": Parser(".json", annotations, read_annotated),
    "export.json": Parser(".json", exports, read_export),
    "annotation.xml": Parser(".xml", voc_files, read_annotated),
    "cvat.xml": Parser(".xml", cvat_files, read_annotated),
    "camtrap": Parser("", tables_of_traps, read_traps),
    "yolo": Parser("", yolo_files, read_yolo),
    "metadata.jsonl": Parser(".jsonl", lambda: [b'{"file_name": "a.png", "label": "owl"}\n'], read_lines),
    "annotated zip": Parser(".zip", packed, read_packed),
    "annotated tar": Parser(".tar", annotated_tars, read_packed),
    "annotated tar.gz": Parser(".tgz", lambda: [gzip.compress(one) for one in annotated_tars()], read_packed),
    **{name: Parser(suffix, seeds, read) for name, (suffix, seeds, read) in DOWNLOADS.items()},
    "body": Parser("", forms, read_body),
    "classifier.json": Parser("", lambda: [json.dumps(description(Path(model_folder()))).encode()], read_model),
}  # fmt: skip
