"""Where data comes from: arrays, a folder of pictures, a table of files, one packed file. Each gives a ``Dataset``.

Splits that come with the data are kept. Without any, each class is divided into train, val and test; with train but
no val, a tenth of each class of train becomes val. A class with a single picture keeps it in train.
"""

import csv
import io
import unicodedata
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from labelwise.core import Labels
from labelwise.data.dataset import SPLITS, Dataset, Skipped, Split
from labelwise.data.pictures import Array, as_batch, channels_first, is_hidden, is_picture, list_pictures, read_pictures
from labelwise.data.splits import Shares, split_off, stratified
from labelwise.errors import DataError, UsageError, listing, suggest

Targets = Sequence[int] | Sequence[str] | Array | Tensor

_SPLITS = {"train": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
_VAL_SHARE = 0.1
_KEYS = ("images", "features", "data", "offsets", "labels", "classes", "split")


@dataclass(frozen=True, eq=False, kw_only=True)
class _Rows:
    """Pictures with their targets, and the split of each where the data say so."""

    images: Tensor
    targets: Tensor
    names: tuple[str, ...]
    splits: Sequence[str] = ()
    files: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _Listed:
    """A picture file that a folder or a table names."""

    path: Path
    label: str
    split: str


def arrays(
    images: Array | Tensor | Mapping[str, Array | Tensor],
    targets: Targets | Mapping[str, Targets],
    *,
    names: Sequence[str] | None = None,
    shares: Shares | None = None,
    seed: int = 0,
) -> Dataset:
    """Return a data set of arrays in memory, numpy or torch.

    Args:
        images: bytes (or floats in [0, 1]) ``[n, h, w, c]``, ``[n, c, h, w]`` or ``[n, h, w]``, or features ``[n, a]``
            as floats; or these for each split: ``{"train": ..., "test": ...}``.
        targets: n labels, as names or as positions in ``names``; for each split where images are.
        names: the names of the labels; without, those that occur, sorted.
        shares: how much train, val and test get where the splits are not given.
        seed: of the division into splits.
    """
    if not isinstance(images, Mapping) and not isinstance(targets, Mapping):
        found, known = _targets(_labels(targets), names)
        return _dataset("arrays", _Rows(images=_images(images), targets=found, names=known), seed, shares)
    if not (isinstance(images, Mapping) and isinstance(targets, Mapping) and set(images) == set(targets) and images):
        raise UsageError("Give images and targets for the same splits, or neither of them by split.")
    parts = {name: (_images(part), _labels(targets[name])) for name, part in images.items()}
    if len({part.shape[1:] for part, _ in parts.values()}) > 1:
        raise DataError(
            f"All splits must hold images of one shape; given {[list(x.shape) for x, _ in parts.values()]}."
        )
    for name, (part, labels) in parts.items():
        _same_length(len(part), len(labels), f" in {name}")
    found, known = _targets(np.concatenate([labels for _, labels in parts.values()]), names)
    splits = [_split_name(name, "Images: ") for name, (part, _) in parts.items() for _ in range(len(part))]
    rows = _Rows(images=torch.cat([part for part, _ in parts.values()]), targets=found, names=known, splits=splits)
    return _dataset("arrays", rows, seed)


def folder(path: str | Path, *, size: int = 64, seed: int = 0, strict: bool = False) -> Dataset:
    """Return the pictures of a folder that has one sub-folder for each label: ``birds/owl/1.jpg``.

    The sub-folders may also lie in ``train``, ``test`` and ``val`` (or ``valid``, ``validation``). Pictures that
    cannot be read, and labels without any readable picture, are left out and listed in ``skipped``.

    Args:
        path: the folder.
        size: the side of the square that each picture is made to fit.
        seed: of the division into splits.
        strict: raise an error where something would be left out.
    """
    root = Path(path)
    if root.is_file():
        verb = {".csv": " Read it with data.table.", ".npz": " Read it with data.pack."}.get(root.suffix.lower(), "")
        raise DataError(f'"{root}" is a file, not a folder.{verb}')
    listed: list[_Listed] = []
    homes: dict[str, str] = {}
    loose: list[str] = []
    for split, place in (_split_folders(root) or {"": root}).items():
        for label, home in _class_folders(place).items():
            homes.setdefault(label, str(home))
            listed += [_Listed(path=file, label=label, split=split) for file in list_pictures(home)]
        loose += [str(file) for file in sorted(place.iterdir()) if file.is_file() and is_picture(file.name)]
    if strict and loose:
        raise DataError(f"Pictures lie outside the class folders: {listing(loose)}. Move or remove them.")
    data = _from_files(root.resolve().name, listed, homes, size=size, seed=seed, strict=strict)
    outside = [Skipped(file=file, reason="it lies outside the class folders") for file in loose]
    return replace(data, skipped=(*data.skipped, *outside))


def table(path: str | Path, *, size: int = 64, seed: int = 0, strict: bool = False) -> Dataset:
    """Return the pictures that a CSV file lists in its columns ``path`` and ``label``, and ``split`` if there is one.

    Fields are separated by commas, semicolons or tabs; the text is UTF-8. Relative paths start at the folder of the
    file. A split is train, val (valid, validation) or test. Rows are counted as a spreadsheet does: the header is 1.

    Args:
        path: the CSV file.
        size: the side of the square that each picture is made to fit.
        seed: of the division into splits.
        strict: raise an error where a picture cannot be read; else it is left out and listed in ``skipped``.
    """
    file = Path(path)
    rows = _csv_rows(file)
    divided = any(row.get("split") for _, row in rows)
    listed: dict[Path, tuple[int, _Listed]] = {}
    for number, row in rows:
        for column in ("path", "label"):
            if not row[column]:
                raise DataError(f'Row {number} of "{file}": the column "{column}" is empty. Fill it or remove the row.')
        where = f'Row {number} of "{file}", column "split": '
        split = _split_name(row["split"], where) if divided else ""
        each = _Listed(path=file.parent / row["path"], label=unicodedata.normalize("NFC", row["label"]), split=split)
        first, other = listed.setdefault(each.path, (number, each))
        if other != each:
            what = "label" if other.label != each.label else "split"
            raise DataError(
                f'Rows {first} and {number} of "{file}" name the same picture, "{row["path"]}", with different {what}s: '
                f'"{getattr(other, what)}" and "{getattr(each, what)}". Keep one of them.'
            )
    if not listed:
        raise DataError(f'"{file}" has no rows below its header. Add one for each picture.')
    homes = {each.label: f'label "{each.label}"' for _, each in listed.values()}
    return _from_files(file.stem, [each for _, each in listed.values()], homes, size=size, seed=seed, strict=strict)


def pack(path: str | Path, *, size: int | None = None, seed: int = 0) -> Dataset:
    """Return the data of one ``.npz`` file, which is read without pickle.

    It holds ``labels [n]``, names or positions in ``classes [k]``, and one of: ``images``, bytes ``[n, h, w, c]``,
    ``[n, c, h, w]`` or ``[n, h, w]``; ``features [n, a]``, floats; or encoded pictures, the bytes of all files one after
    another in ``data`` and where they begin and end in ``offsets [n + 1]``. ``split [n]`` is optional: names, or
    0 train and 1 test, or 0 train, 1 val and 2 test.

    Args:
        path: the file.
        size: the side of the square that each picture is made to fit; as they are (encoded ones: as the short side of the
            first) without.
        seed: of the division into splits.
    """
    file = Path(path)
    held = _npz(file)
    try:
        return _dataset(file.stem, _packed(held, size), seed)
    except UsageError as error:
        raise DataError(f'"{file}": {error}') from None


def _dataset(name: str, rows: _Rows, seed: int, shares: Shares | None = None) -> Dataset:
    """Return the data set of these rows, divided into splits as the top of this file says."""
    _same_length(len(rows.images), len(rows.targets))
    if len(set(rows.targets.tolist())) < 2:
        raise DataError(
            f'"{name}" has pictures of one label only ({rows.names[int(rows.targets[0])]}). At least two are needed.'
        )
    if rows.splits:
        parts = {
            split: torch.tensor([i for i, s in enumerate(rows.splits) if s == split]) for split in set(rows.splits)
        }
        if "train" not in parts:
            raise DataError(
                f'"{name}" has no train split, only {listing(sorted(parts))}. Name what to train on "train".'
            )
        if "val" not in parts:
            kept, held = split_off(rows.targets[parts["train"]], _VAL_SHARE, seed)
            parts |= {"train": parts["train"][kept], "val": parts["train"][held]}
    else:
        parts = stratified(rows.targets, shares or Shares(), seed)
    seen = set(rows.targets[parts["train"]].tolist())
    for split in parts:
        strange = sorted(set(rows.targets[parts[split]].tolist()) - seen)
        if strange:
            raise DataError(
                f'"{name}" has labels in {split} that train does not have: {listing(rows.names[i] for i in strange)}. '
                f"Add training pictures of them, or take them out of {split}."
            )
    whole = Split(images=rows.images, targets=rows.targets, files=rows.files)
    splits = {split: whole.select(parts[split]) for split in SPLITS if split in parts}
    return Dataset(name=name, labels=Labels(names=rows.names), splits=splits, skipped=rows.skipped)


def _from_files(
    name: str, listed: Sequence[_Listed], homes: Mapping[str, str], *, size: int, seed: int, strict: bool
) -> Dataset:
    """Return the data set of picture files; ``homes`` says for each label where its pictures should be."""
    if not listed:
        raise DataError(f'"{name}" has no picture in its class folders: {listing(homes)}. Put some in at least two.')
    images, kept, skipped = read_pictures([each.path for each in listed], size, strict=strict)
    names = tuple(sorted({listed[i].label for i in kept}))
    lost = sorted(set(homes) - set(names))
    if lost and (strict or len(names) < 2):
        raise DataError(
            f'"{name}" has no readable picture of: {listing(lost)}. Add some or remove the label; at least two labels '
            f"with pictures are needed (there are: {listing(names)})."
        )
    position = {label: i for i, label in enumerate(names)}
    rows = _Rows(
        images=images,
        targets=torch.tensor([position[listed[i].label] for i in kept]),
        names=names,
        splits=[listed[i].split for i in kept] if listed[0].split else (),
        files=tuple(str(listed[i].path) for i in kept),
        skipped=(*skipped, *(Skipped(file=homes[label], reason="no readable picture") for label in lost)),
    )
    return _dataset(name, rows, seed)


def _subfolders(place: Path) -> list[Path]:
    """Return the folders in a folder that people see, sorted."""
    try:
        return sorted(each for each in place.iterdir() if each.is_dir() and not is_hidden(each.name))
    except OSError as error:
        raise DataError(f'Cannot list the folder "{place}": {error.strerror}. Check the path and its rights.') from None


def _split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split, or nothing where the sub-folders are the classes."""
    found: dict[str, Path] = {}
    other = [place for place in _subfolders(root) if place.name.casefold() not in _SPLITS]
    for place in _subfolders(root):
        if place not in other:
            before = found.setdefault(_SPLITS[place.name.casefold()], place)
            if before is not place:
                raise DataError(f'"{before}" and "{place}" are the same split. Keep one of them.')
    if not other:
        return found
    if len(found) > 1:  # a single one may be a class: a railway train
        raise DataError(
            f'"{root}" holds splits ({listing(sorted(found))}) and other folders ({listing(p.name for p in other)}). '
            "Keep either splits or classes in it."
        )
    return {}


def _class_folders(place: Path) -> dict[str, Path]:
    """Return the folder of each label."""
    found: dict[str, Path] = {}
    for each in _subfolders(place):
        before = found.setdefault(unicodedata.normalize("NFC", each.name), each)
        if before is not each:
            raise DataError(
                f'Two folders in "{place}" have the same name, "{each.name}", in different Unicode spellings. Rename one.'
            )
    if found:
        return found
    pictures = list_pictures(place)
    if pictures:
        raise DataError(
            f'"{place}" holds {len(pictures)} pictures but no class folders. Put the pictures of each label into a '
            f'folder of that name ("{place.name}/owl/{pictures[0].name}"), or list them in a CSV file for data.table.'
        )
    raise DataError(f'"{place}" is empty. Make one folder in it for each label, with its pictures.')


def _csv_rows(file: Path) -> list[tuple[int, dict[str, str]]]:
    """Return the number and the fields ``path``, ``label`` and perhaps ``split`` of each row of a table."""
    try:
        text = file.read_bytes().decode("utf-8-sig")
        separator = max(",;\t", key=text.partition("\n")[0].count)
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
        rows = [(number, fields) for number, fields in enumerate(reader, 1) if any(field.strip() for field in fields)]
    except OSError as error:
        raise DataError(f'Cannot read the table "{file}": {error.strerror}. Check the path and its rights.') from None
    except UnicodeDecodeError:
        raise DataError(f'The table "{file}" is not UTF-8 text. Save it as "CSV UTF-8".') from None
    except csv.Error as error:
        raise DataError(f'The table "{file}" is not well-formed: line {reader.line_num}: {error}.') from None
    if not rows:
        raise DataError(f'The table "{file}" is empty. Its first row must name the columns: path, label.')
    columns = [field.strip().casefold() for field in rows[0][1]]
    for column in ("path", "label", "split"):
        if columns.count(column) != 1 and (column != "split" or column in columns):
            what = "more than one column" if column in columns else "no column"
            near = suggest(column, columns) if column not in columns else ""
            raise DataError(f'The table "{file}" has {what} "{column}".{near} Its columns: {listing(columns)}.')
    return [(number, _csv_row(fields, columns, f'Row {number} of "{file}"')) for number, fields in rows[1:]]


def _csv_row(fields: list[str], columns: list[str], where: str) -> dict[str, str]:
    """Return the fields of one row under the names of their columns; those at the end may be left out."""
    if any(field.strip() for field in fields[len(columns) :]):
        raise DataError(
            f"{where} has {len(fields)} fields, the header {len(columns)}. Put fields that hold a separator into quotes."
        )
    return dict(zip(columns, [field.strip() for field in fields] + [""] * len(columns), strict=False))


def _npz(file: Path) -> dict[str, Array]:
    """Return what an ``.npz`` file holds, each array decompressed once; those of no use here stay empty."""
    try:
        with file.open("rb") as stream:
            if not zipfile.is_zipfile(stream):
                raise DataError(f'"{file}" is not an .npz file, or it is damaged. Write it with numpy.savez.')
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as held:
                return {key: held[key] if key in _KEYS else np.empty(0) for key in held.files}
    except OSError as error:
        raise DataError(f'Cannot read "{file}": {error.strerror or error}. Check the path and its rights.') from None
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        if "pickle" in str(error):
            raise DataError(f'"{file}" holds Python objects, which are not read. Save plain arrays.') from None
        raise DataError(f'"{file}" is damaged ({error}). Write it again.') from None


def _packed(held: Mapping[str, Array], size: int | None) -> _Rows:
    """Return the rows of a packed file."""
    kinds = [kind for kind in ("images", "features", "data") if kind in held]
    missing = [key for key in ("labels", *(("offsets",) if "data" in kinds else ())) if key not in held]
    if len(kinds) != 1 or missing:
        wrong = f"lacks {listing(missing)}" if missing else f"has {listing(kinds) or 'no pictures'}"
        raise UsageError(
            f'it {wrong}; it needs "labels" and one of "images", "features", or "data" with "offsets". '
            f"It holds: {listing(held) or 'nothing'}."
        )
    labels = _labels(held["labels"])
    targets, names = _targets(labels, _labels(held["classes"]).tolist() if "classes" in held else None)
    splits = _packed_splits(_labels(held["split"])) if "split" in held else []
    if splits:
        _same_length(len(labels), len(splits), " and their splits")
    if "data" in held:
        files = _encoded(held["data"], held["offsets"], len(labels))
        images, kept, skipped = read_pictures(files, size or _side(files))
        splits = [splits[i] for i in kept] if splits else []
        return _Rows(images=images, targets=targets[kept], names=names, splits=splits, skipped=skipped)
    images = _images(held[kinds[0]])
    if size and images.ndim == 4:
        images = as_batch(images, (images.shape[1], size, size))
    return _Rows(images=images, targets=targets, names=names, splits=splits)


def _encoded(data: Array, offsets: Array, n: int) -> list[bytes]:
    """Return the content of each of n files that lie one after another in ``data``."""
    if data.dtype != np.uint8 or data.ndim != 1 or offsets.dtype.kind not in "iu" or offsets.shape != (n + 1,):
        raise UsageError(
            f'"data" must be bytes (uint8) in one row and "offsets" {n + 1} whole numbers, one more than labels; given '
            f"{data.dtype} {list(data.shape)} and {offsets.dtype} {list(offsets.shape)}."
        )
    ends = offsets.tolist()
    if ends != sorted(ends) or ends[0] < 0 or ends[-1] > len(data):
        raise UsageError(f'"offsets" must rise from 0 to at most {len(data)}, the size of "data".')
    return [data[start:end].tobytes() for start, end in pairwise(ends)]


def _side(files: Sequence[bytes]) -> int:
    """Return the short side of the first picture that can be opened."""
    for file in files:
        with suppress(Exception), Image.open(io.BytesIO(file)) as picture:
            return min(picture.size)
    raise UsageError("none of its pictures can be read.")


def _packed_splits(given: Array) -> list[str]:
    """Return the split of each row from names or numbers."""
    values = given.tolist()
    if given.dtype.kind == "U":
        return [_split_name(value, f'Row {i} of "split": ') for i, value in enumerate(values)]
    order = ("train", "val", "test") if 2 in values else ("train", "test")
    if not set(values) <= set(range(len(order))):
        raise UsageError(
            f'"split" must be 0 train and 1 test, or 0 train, 1 val, 2 test; given {sorted(set(values))[:9]}.'
        )
    return [order[value] for value in values]


def _split_name(given: str, where: str) -> str:
    name = _SPLITS.get(given.strip().casefold())
    if name is None:
        raise DataError(f'{where}unknown split "{given}".{suggest(given, _SPLITS)} Splits are train, val and test.')
    return name


def _same_length(images: int, targets: int, where: str = "") -> None:
    if images != targets:
        raise DataError(f"There are {images} images but {targets} targets{where}; give one for each image.")


def _images(given: Array | Tensor) -> Tensor:
    """Return bytes ``[n, c, h, w]`` of pictures, or float32 ``[n, a]`` of features."""
    if given.ndim == 2:
        if not (given.is_floating_point() if isinstance(given, Tensor) else given.dtype.kind == "f"):
            raise UsageError(
                f"Features must be floats [n, size]; given {given.dtype} {list(given.shape)}. Pictures need their height "
                "and width: [n, height, width]."
            )
        return as_batch(given, (given.shape[1],))
    shape = (1, *given.shape[1:]) if given.ndim == 3 else ()
    images = channels_first(given, shape)
    if images.shape[1] not in (1, 3):
        raise UsageError(
            f"Pictures have 1 channel (grey) or 3 (colour); given {images.shape[1]}. Leave out transparency."
        )
    return images


def _labels(given: Targets) -> Array:
    """Return labels ``[n]`` as whole numbers or as text."""
    values: Array = given.cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if values.dtype.kind == "O" and all(isinstance(value, str) for value in values.flat):
        values = values.astype(np.str_)
    if values.ndim != 1 or not len(values) or values.dtype.kind not in "iuU":
        raise UsageError(
            f"Labels must be whole numbers or names, one for each image; given {values.dtype} {list(values.shape)}."
        )
    return values


def _targets(values: Array, names: Sequence[str] | None) -> tuple[Tensor, tuple[str, ...]]:
    """Return positions ``[n]`` in the names of the labels, and these names."""
    if values.dtype.kind == "U":
        texts = [unicodedata.normalize("NFC", text) for text in values.tolist()]
        known = tuple(sorted(set(texts))) if names is None else tuple(unicodedata.normalize("NFC", n) for n in names)
        position = {name: i for i, name in enumerate(known)}
        strange = next((text for text in texts if text not in position), None)
        if strange is not None:
            raise UsageError(
                f'Label "{strange}" is not among the names.{suggest(strange, known)} Names: {listing(known)}.'
            )
        return torch.tensor([position[text] for text in texts]), known
    low, high = int(values.min()), int(values.max())
    if low < 0 or (names is not None and high >= len(names)):
        most = "" if names is None else f" and at most {len(names) - 1}, as there are {len(names)} names"
        raise UsageError(f"Labels as numbers must be at least 0{most}; given {low} to {high}.")
    if names is not None:
        return torch.from_numpy(values.astype(np.int64)), tuple(str(name) for name in names)
    found, where = np.unique(values, return_inverse=True)
    return torch.from_numpy(where.astype(np.int64)), tuple(str(value) for value in found.tolist())
