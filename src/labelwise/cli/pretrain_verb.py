"""The verb that trains an image encoder without labels: pretrain."""

import json as json_
import shutil
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from labelwise.cli.method_choice import check_size
from labelwise.cli.output import note, out, percent, plain_table, print_json
from labelwise.cli.picture_verbs import AsJson, Device, Strict
from labelwise.cli.run_folder import sole_run, weights_told
from labelwise.cli.train_verbs import Overwrite, Root, Splits
from labelwise.errors import UsageError
from labelwise.writable import check_writable

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.data import Dataset
    from labelwise.fitting.patches import Patches
    from labelwise.fitting.pretraining import Pretrain
    from labelwise.nn.encoder import ImageEncoder
    from labelwise.training.stages import Run

DATA_HELP = "A folder of pictures, with or without label folders, a table, a pack, or the name of a set."
PATCHES = "patches"  # the kind that is found and not trained
USUAL = "simclr"


def pretrain(  # noqa: PLR0913 - the options of the verb
    data: Annotated[str, typer.Argument(help=DATA_HELP, show_default=False)],
    out_file: Annotated[Path, typer.Option("--out", help="The .safetensors file to write.", show_default=False)],
    kind: Annotated[
        str | None, typer.Option(help="simclr (usual); moco: a queue, for small batches; patches: in seconds.")
    ] = None,
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
        _list_settings(kind or USUAL)
        return
    from labelwise.data.catalogue import side_to_read
    from labelwise.fitting.patches import Patches
    from labelwise.nn.encoder import Encoder
    from labelwise.training.distribution import is_main_process
    from labelwise.training.stages import Run

    method = _method(kind, words)
    _check_out(out_file, overwrite)
    _check_resume(method, resume, device)
    folder = resume or out_file.with_name(out_file.name + ".run")
    with sole_run(out_file, folder, resume=resume is not None):
        side = size or side_to_read(data, Encoder() if isinstance(method, Patches) else method.encoder)
        images, dataset = _read(data, side, root, splits, strict)
        _check_data(data, dataset, size, probe)
        if is_main_process():
            what = PATCHES if isinstance(method, Patches) else method.kind
            note(f"{len(images)} images, shape {list(images.shape[1:])}; {what}, labels are not read")
        if isinstance(method, Patches):
            encoder, about = _patches(images, out_file, method, seed)
        else:
            settings = Run(seed=seed, device=device, folder=folder, resume=resume is not None, progress=not json)
            encoder, about = _trained(images, out_file, method, settings)
    if is_main_process():
        _tell(out_file, about | _probe(encoder, dataset if probe else None), json)


def _trained(images: "Tensor", file: Path, method: "Pretrain", run: "Run") -> tuple["ImageEncoder", dict[str, Any]]:
    """Return the encoder that was trained, which the main process writes to the file, and what there is to tell."""
    from labelwise.fitting.pretraining import pretrain as train
    from labelwise.fitting.pretraining import write_encoder
    from labelwise.training.distribution import is_main_process

    assert run.folder is not None
    again = f"the same command and --resume {run.folder}"
    with weights_told(run.folder, again):
        encoder, summary = train(images, method, run)
    about = {"kind": method.kind, "epochs": method.epochs, "images": len(images), **summary}
    if is_main_process():
        about |= _last_epoch(run.folder)
        with weights_told(run.folder, again, trained=True):
            write_encoder(file, encoder, method.encoder, about)
        shutil.rmtree(run.folder)
    return encoder, about


def _patches(images: "Tensor", file: Path, settings: "Patches", seed: int) -> tuple["ImageEncoder", dict[str, Any]]:
    """Return the encoder of patches, which is written to the file, and what there is to tell."""
    from labelwise.fitting.patches import find_patches
    from labelwise.fitting.pretraining import write_encoder
    from labelwise.nn.encoder import Encoder

    started = time.perf_counter()
    encoder = find_patches(images, settings, seed=seed)
    seconds = round(time.perf_counter() - started, 1)
    about = {"kind": PATCHES, "images": len(images), "seconds": seconds, "device": "cpu"}
    write_encoder(file, encoder, Encoder(backbone=PATCHES, width=settings.width), about)
    return encoder, about


def _check_resume(method: "Pretrain | Patches", resume: Path | None, device: str) -> None:
    """Raise an error where there is nothing to continue, or no choice of device."""
    from labelwise.fitting.patches import Patches
    from labelwise.training.checkpoint import has_checkpoint

    if isinstance(method, Patches) and (resume is not None or device == "cuda"):
        raise UsageError("Patches are found at once, on a CPU. Leave out --resume and --device cuda.")
    if resume is not None and not has_checkpoint(resume):
        raise UsageError(f'There is no checkpoint in "{resume}" to continue from. Leave out --resume to start anew.')


def _check_data(data: str, dataset: "Dataset | None", size: int | None, probe: bool) -> None:
    """Raise an error where the data lack what is asked for."""
    if dataset is not None:
        check_size(dataset, size)
    if probe and dataset is None:
        raise UsageError(f'"{data}" has no labels to look at. Leave out --probe.')
    if probe and dataset is not None:
        dataset.split("test")


def _method(kind: str | None, words: list[str]) -> "Pretrain | Patches":
    """Return what to train or find, from the words of the shell; a kind that is given twice, as two, is an error."""
    from labelwise.fitting.patches import Patches
    from labelwise.fitting.pretraining import Pretrain
    from labelwise.settings import override, pairs_of

    pairs = pairs_of(words)
    said = pairs.get("kind", kind or USUAL)
    if kind is not None and said != kind:
        raise UsageError(f"--kind {kind} and --set kind={said} differ. Keep one of them.")
    if said == PATCHES:
        return override(Patches(), {key: value for key, value in pairs.items() if key != "kind"})
    return override(Pretrain(), {**pairs, "kind": said})


def _list_settings(kind: str) -> None:
    from labelwise.fitting.patches import Patches
    from labelwise.fitting.pretraining import Pretrain
    from labelwise.settings import describe

    table = plain_table("setting", "default")
    for key, value in describe(Patches() if kind == PATCHES else Pretrain()):
        table.add_row(key, value)
    out().print(table)


def _check_out(file: Path, overwrite: bool) -> None:
    if file.suffix.lower() != ".safetensors":
        raise UsageError(f'Weights are written as a .safetensors file; given "{file}".')
    check_writable(file)
    if file.exists() and not overwrite:
        raise UsageError(f"{file} exists already. Choose another name, or replace it with --overwrite.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder; choose another name.")


def _read(
    data: str, size: int | None, root: Path | None, splits: Path | None, strict: bool
) -> tuple["Tensor", "Dataset | None"]:
    """Return the pictures to train on, and the data set they come from where it has splits and labels."""
    from labelwise.data import apply_split, load
    from labelwise.nn.encoder import DEFAULT_SIDE

    place = _plain_folder(Path(data))
    if place is not None and splits is None:
        return _read_plain(place, size or DEFAULT_SIDE, strict), None
    dataset = load(data, size=size, strict=strict, root=root)
    dataset = apply_split(dataset, splits) if splits else dataset
    for one in dataset.skipped[:10]:
        note(f"Skipped {one.file}: {one.reason}")
    return dataset.split("train").images, dataset


def _plain_folder(root: Path) -> Path | None:
    """Return where pictures lie that are not sorted into label folders, or None."""
    from labelwise.data.read.folders import split_folders
    from labelwise.data.read.pictures import is_hidden, list_pictures

    if not root.is_dir():
        return None
    place = split_folders(root).get("train", root)
    folders = [each for each in place.iterdir() if each.is_dir() and not is_hidden(each.name)]
    return place if len(folders) < 2 and list_pictures(place) else None


def _read_plain(place: Path, size: int, strict: bool) -> "Tensor":
    from labelwise.data.read.files import read_paths
    from labelwise.data.read.pictures import list_pictures

    images, _, skipped = read_paths(list_pictures(place), (3, size, size), strict=strict)
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
    from labelwise.fitting.choice import STATED
    from labelwise.fitting.pretraining import read_encoder

    stored = read_encoder(file)
    known = [f"--set encoder.{key}={getattr(stored, key)}" for key in STATED if getattr(stored, key) is not None]
    note(f"Use it: labelwise fit DATA --set encoder.weights={file} --set encoder.frozen=true {' '.join(known)}")
