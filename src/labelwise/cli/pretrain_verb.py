"""The verb that trains an image encoder without labels: pretrain."""

import json as json_
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.output import note, out, percent, plain_table, print_json
from labelwise.cli.picture_verbs import AsJson, Device, Strict
from labelwise.cli.train_verbs import Overwrite, Root, Splits
from labelwise.errors import StoreError, UsageError, listing

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.data import Dataset
    from labelwise.methods.unlabelled import Pretrain
    from labelwise.nn.encoder import ImageEncoder

DATA_HELP = "A folder of pictures, with or without label folders, a table, a pack, or the name of a set."
PATCHES = "patches"  # the kind that is found and not trained
KEYS = ("backbone", "width", "size")  # of an encoder, which a file of weights states


def pretrain(  # noqa: PLR0913 - the options of the verb
    data: Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)],
    out_file: Annotated[Path, typer.Option("--out", help="The .safetensors file to write.", show_default=False)],
    kind: Annotated[
        str, typer.Option(help="simclr; moco: a queue, for small batches; patches: in seconds.")
    ] = "simclr",
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting as key=value; --set help lists them.")
    ] = None,
    splits: Splits = None,
    root: Root = None,
    size: Annotated[int | None, typer.Option(min=8, help="Side in pixels that pictures are brought to.")] = None,
    seed: int = 0,
    device: Device = "auto",
    probe: Annotated[
        bool, typer.Option("--probe", help="Then look at labels: how well near training images name test images.")
    ] = False,
    resume: Annotated[
        Path | None, typer.Option(help="The folder of an interrupted run, to continue it.", show_default=False)
    ] = None,
    overwrite: Overwrite = False,
    strict: Strict = False,
    json: AsJson = False,
) -> None:
    """Train an image encoder on pictures alone, without labels, for any method to start from."""
    words = list(set_ or [])
    if "help" in words:
        _list_settings(kind)
        return
    from labelwise.checkpoint import has_checkpoint
    from labelwise.distributed import is_main_process
    from labelwise.methods.unlabelled import pretrain as run
    from labelwise.methods.unlabelled import write_encoder
    from labelwise.training import Run

    _check_out(out_file, overwrite)
    if resume is not None and not has_checkpoint(resume):
        raise UsageError(f'There is no checkpoint in "{resume}" to continue from. Leave out --resume to start anew.')
    method = None if kind == PATCHES else _method(kind, words)
    images, dataset = _read(data, size, root, splits, strict)
    if dataset is None and probe:
        raise UsageError(f'"{data}" has no labels to look at. Leave out --probe.')
    if method is None:
        encoder, about = _patches(images, out_file, words, seed)
        _tell(out_file, about | _probe(encoder, dataset if probe else None), json)
        return
    if is_main_process():
        note(f"{len(images)} images, shape {list(images.shape[1:])}; {method.kind}, labels are not read")
    folder = resume or out_file.with_name(out_file.name + ".run")
    settings = Run(seed=seed, device=device, folder=folder, resume=resume is not None, progress=not json)
    encoder, summary = run(images, method, settings)
    if not is_main_process():
        return
    about = {"kind": method.kind, "epochs": method.epochs, "images": len(images), **summary, **_last_epoch(folder)}
    write_encoder(out_file, encoder, method.encoder, about)
    shutil.rmtree(folder)
    _tell(out_file, about | _probe(encoder, dataset if probe else None), json)


def _method(kind: str, words: list[str]) -> "Pretrain":
    """Return what to train, from the words of the shell."""
    from labelwise.methods.unlabelled import Pretrain
    from labelwise.settings import override

    return override(Pretrain(), {"kind": kind, **_pairs(words)})


def _pairs(words: list[str]) -> dict[str, str]:
    """Return settings given as key=value."""
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise UsageError(f'Settings are given as key=value; given "{wrong[0]}".')
    return dict(word.split("=", 1) for word in words)


def _patches(images: "Tensor", file: Path, words: list[str], seed: int) -> tuple["ImageEncoder", dict[str, Any]]:
    """Return the encoder of patches, which is written to the file, and what there is to tell."""
    from labelwise.methods.patches import Patches, find_patches
    from labelwise.methods.unlabelled import write_encoder
    from labelwise.nn.encoder import Encoder
    from labelwise.settings import override

    settings = override(Patches(), _pairs(words))
    note(f"{len(images)} images, shape {list(images.shape[1:])}; {PATCHES}, labels are not read")
    started = time.perf_counter()
    encoder = find_patches(images, settings, seed=seed)
    seconds = round(time.perf_counter() - started, 1)
    about = {"kind": PATCHES, "images": len(images), "seconds": seconds, "device": "cpu"}
    write_encoder(file, encoder, Encoder(backbone=PATCHES, width=settings.width), about)
    return encoder, about


def _list_settings(kind: str) -> None:
    from labelwise.methods.patches import Patches
    from labelwise.methods.unlabelled import Pretrain
    from labelwise.settings import describe

    table = plain_table("setting", "default")
    for key, value in describe(Patches() if kind == PATCHES else Pretrain()):
        table.add_row(key, value)
    out().print(table)


def _check_out(file: Path, overwrite: bool) -> None:
    if file.suffix.lower() != ".safetensors":
        raise UsageError(f'Weights are written as a .safetensors file; given "{file}".')
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists already. Choose another name, or replace it with --overwrite.")
    file.parent.mkdir(parents=True, exist_ok=True)


def _read(
    data: str, size: int | None, root: Path | None, splits: Path | None, strict: bool
) -> tuple["Tensor", "Dataset | None"]:
    """Return the pictures to train on, and the data set they come from where it has splits and labels."""
    from labelwise.data import apply_split, load

    place = _plain_folder(Path(data))
    if place is not None and splits is None:
        return _read_plain(place, size, strict), None
    dataset = load(data, size=size, strict=strict, root=root)
    dataset = apply_split(dataset, splits) if splits else dataset
    for one in dataset.skipped[:10]:
        note(f"Skipped {one.file}: {one.reason}")
    return dataset.split("train").images, dataset


def _plain_folder(root: Path) -> Path | None:
    """Return where pictures lie that are not sorted into label folders, or None."""
    from labelwise.data.pictures import is_hidden, list_pictures
    from labelwise.data.sources import split_folders

    if not root.is_dir():
        return None
    place = split_folders(root).get("train", root)
    folders = [each for each in place.iterdir() if each.is_dir() and not is_hidden(each.name)]
    return place if len(folders) < 2 and list_pictures(place) else None


def _read_plain(place: Path, size: int | None, strict: bool) -> "Tensor":
    from labelwise.data.catalogue import DEFAULT_SIZE
    from labelwise.data.pictures import list_pictures
    from labelwise.data.reading import Listed, read_listed

    listed = [Listed(path=file, label=None, split="train") for file in list_pictures(place)]
    _, (images, _, skipped) = read_listed(place.name, listed, size=size or DEFAULT_SIZE, seed=0, strict=strict)
    for one in skipped[:10]:
        note(f"Skipped {one.file}: {one.reason}")
    return images


def _last_epoch(folder: Path) -> dict[str, float]:
    """Return loss, alignment and uniformity of the last epoch in the log of a run."""
    lines = [json_.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {"loss": lines[-1]["loss"], **lines[-1]["measured"]}


def _probe(encoder: "ImageEncoder", dataset: "Dataset | None") -> dict[str, Any]:
    """Return how well near training images name test images; nothing without data to look at."""
    if dataset is None:
        return {}
    from labelwise.evaluate.unlabelled import probe_neighbours

    return {"neighbours": asdict(probe_neighbours(encoder, dataset.split("train"), dataset.split("test")))}


def _tell(file: Path, about: Mapping[str, Any], json: bool) -> None:
    if json:
        print_json({"weights": str(file), **about})
        return
    out().print(f"[bold]{file}[/]: {about['images']} images, {about['seconds']:.0f} s on {about['device']}")
    if "loss" in about:
        figures = ", ".join(f"{name} {about[name]:.3f}" for name in ("loss", "alignment", "uniformity"))
        out().print(f"last epoch: {figures} (alignment: 0 is best; uniformity: lower is more even)")
    if "neighbours" in about:
        found = about["neighbours"]
        out().print(f"{found['k']} nearest training images name {percent(found['accuracy'])} of test images rightly")
    from labelwise.methods.unlabelled import read_encoder

    stored = read_encoder(file)
    known = [f"--set encoder.{key}={getattr(stored, key)}" for key in KEYS if getattr(stored, key) is not None]
    note(f"Use it: labelwise fit DATA --set encoder.weights={file} --set encoder.frozen=true {' '.join(known)}")


def with_stored_encoder(pairs: Mapping[str, str]) -> dict[str, str]:
    """Return settings given as text, with the backbone that a file of weights states where they leave it open.

    Settings that contradict the file are an error. A file that states nothing, or is not there, changes nothing.
    """
    from labelwise.methods.unlabelled import read_encoder

    path = Path(pairs.get("encoder.weights", ""))
    if path.suffix.lower() != ".safetensors" or not path.is_file():
        return dict(pairs)
    try:
        stored = read_encoder(path)
    except StoreError:
        return dict(pairs)
    known = {f"encoder.{key}": str(getattr(stored, key)) for key in KEYS if getattr(stored, key) is not None}
    given = {key: value for key, value in pairs.items() if value != "auto"}
    wrong = [key for key in ("encoder.backbone", "encoder.width") if given.get(key, known.get(key)) != known.get(key)]
    if wrong:
        said = listing(f"{key} is {known.get(key, 'the usual one')}, not {given[key]}" for key in wrong)
        raise UsageError(f'The weights in "{path}" belong to another encoder: {said}. Leave these settings out.')
    return {**known, **given}
