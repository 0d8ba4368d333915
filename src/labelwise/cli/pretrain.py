"""The verb pretrain: train an image encoder on images without labels."""

import shutil
import time
from collections.abc import Iterator, Mapping
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import RenderableType
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import new_run, open_data, tell_skipped
from labelwise.cli.options import Resume, Settings, Size, shared_options
from labelwise.cli.output import note, percent, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.files import read_text
from labelwise.support.settings import override, pairs_of
from labelwise.support.writable import check_writable
from labelwise.train.run_folder import sole_verb, weights_told

if TYPE_CHECKING:
    from torch import Tensor

    from labelwise.train.networks.encoder import Encoder
    from labelwise.train.networks.image_encoder import ImageEncoder
    from labelwise.train.networks.patches import Patches
    from labelwise.train.pretraining import Pretrain

DATA_HELP = "A folder of images, a table, a pack, or the name of a set."
PATCHES = "patches"  # computed in closed form, not trained
USUAL = "simclr"


def pretrain(  # noqa: PLR0913 - the options of the verb
    data: Annotated[str, Argument(help=DATA_HELP)],
    out_file: Annotated[Path, Option("--out", help="The .safetensors file to write.")],
    kind: Annotated[str | None, Option(help="simclr; moco for small batches; patches in seconds.")] = None,
    set_: Settings = None,
    size: Size = None,
    probe: Annotated[bool, Option("--probe", help="Also measure how often neighbours share a label.")] = False,
    resume: Resume = False,
) -> None:
    """Train an image encoder on images without labels."""
    from labelwise.evaluation.naming import probe_neighbours
    from labelwise.support.processes import is_main_process, is_restarted
    from labelwise.train.networks.patches import Patches
    from labelwise.train.pretraining import write_encoder

    words = list(set_ or [])
    folder = out_file.with_name(out_file.name + ".run")
    run = new_run(words, folder, resume=resume or is_restarted())
    method = _method(kind, words)
    if isinstance(method, Patches) and (resume or shared_options().device == "cuda"):
        raise UsageError("Patches are computed in seconds on a CPU. Leave out --resume and --device cuda.")
    _check(out_file, folder if resume else None)
    with sole_verb(out_file, folder, resume=run.resume):
        images, dataset = _read(data, method, size)
        if probe and dataset is None:
            raise UsageError(f'"{data}" has no labels to compare with. Leave out --probe.')
        tests = dataset.split("test") if probe and dataset is not None else None
        if is_main_process():
            kind_of_training = PATCHES if isinstance(method, Patches) else method.kind
            note(f"{len(images)} images, shape {list(images.shape[1:])}; {kind_of_training}, labels are not read")
        with weights_told(folder):
            encoder, settings, summary = _train(images, method, run)
        if not is_main_process():
            return
        with weights_told(folder, trained=True):
            write_encoder(out_file, encoder, settings, summary)
        if not isinstance(method, Patches):
            shutil.rmtree(folder)
    if tests is not None and dataset is not None:
        summary["neighbours"] = probe_neighbours(encoder, dataset.split("train"), tests)
    show({"weights": str(out_file), **summary}, *_lines(out_file, summary))
    if not shared_options().json:
        _tell_use(out_file)


def _method(kind: str | None, words: list[str]) -> "Pretrain | Patches":
    """Return the pretraining method of the command line; raise an error for two different kinds."""
    from labelwise.train.networks.patches import Patches
    from labelwise.train.pretraining import Pretrain

    pairs = pairs_of(words)
    kind_name = pairs.pop("kind", kind or USUAL)
    if kind is not None and kind_name != kind:
        raise UsageError(f"--kind {kind} and --set kind={kind_name} differ. Give only one.")
    return override(Patches(), pairs) if kind_name == PATCHES else override(Pretrain(), {**pairs, "kind": kind_name})


def _check(file: Path, resume: Path | None) -> None:
    """Raise an error if the file cannot be written, or there is no run to continue."""
    from labelwise.train.run_folder import has_checkpoint

    if file.suffix.lower() != ".safetensors":
        raise UsageError(f'--out takes a .safetensors file; given "{file}".')
    check_writable(file)
    if file.exists() and not shared_options().overwrite:
        raise UsageError(f"{file} exists already. Choose another name, or replace it with --overwrite.")
    if file.is_dir():
        raise UsageError(f"{file} is a folder; choose another name.")
    if resume is not None and not has_checkpoint(resume):
        raise UsageError(f'There is no checkpoint in "{resume}" to continue from. Leave out --resume to start again.')


def _read(data: str, method: "Pretrain | Patches", size: int | None) -> tuple["Tensor", "lw.data.Dataset | None"]:
    """Return the training images, and their data set if it has splits and labels."""
    from labelwise.images.file_images import FileImages
    from labelwise.images.images import Images, check_read
    from labelwise.images.sources.build import readable
    from labelwise.images.sources.folders import plain_folder
    from labelwise.images.sources.paths import list_images
    from labelwise.images.view import WHOLE
    from labelwise.train.networks.encoder import DEFAULT_SIDE, Encoder
    from labelwise.train.networks.patches import Patches
    from labelwise.train.pixels import readable_pixels

    folder, strict = plain_folder(Path(data)), shared_options().strict
    encoder, view = (Encoder(), WHOLE) if isinstance(method, Patches) else (method.encoder, method.view)
    side = encoder.side(view) or view.side(DEFAULT_SIDE)
    dataset = None
    if folder is not None and shared_options().splits is None:
        images: Images = FileImages(list_images(folder), None if size is None else (3, size, size))
    else:
        dataset = open_data(data, encoder.side(view), size=size)
        dataset = readable(dataset, ("train",), (3, side, side))
        tell_skipped(dataset.skipped)
        images = dataset.split("train").images
    pixels, skipped = readable_pixels(images, images.shape or (3, side, side), view.fit)
    check_read(list(skipped.values()), len(images), strict=strict)
    tell_skipped(list(skipped.values()))
    return pixels, dataset


def _train(
    images: "Tensor", method: "Pretrain | Patches", run: "lw.Run"
) -> tuple["ImageEncoder", "Encoder", dict[str, Any]]:
    """Return the encoder, its settings, and a summary of the training."""
    from labelwise.support.processes import is_main_process
    from labelwise.train.networks.encoder import Encoder
    from labelwise.train.networks.patches import Patches, find_patches
    from labelwise.train.pretraining import pretrain as train

    if isinstance(method, Patches):
        start = time.perf_counter()
        encoder = find_patches(images, method, seed=run.seed)
        seconds = round(time.perf_counter() - start, 1)
        run_summary = {"kind": PATCHES, "images": len(images), "seconds": seconds, "device": "cpu"}
        return encoder, Encoder(backbone=PATCHES, width=method.width), run_summary
    assert run.folder is not None
    encoder, summary = train(images, method, run)
    run_summary = {"kind": method.kind, "epochs": method.epochs, "images": len(images), **summary}
    if is_main_process():  # writes the log
        last = loads(read_text(run.folder / "log.jsonl").splitlines()[-1])
        run_summary |= {"loss": last["loss"], **last["measured"]}
    return encoder, method.encoder, run_summary


def _lines(file: Path, summary: Mapping[str, Any]) -> Iterator[RenderableType]:
    yield styled(
        (str(file), "bold"), f": {summary['images']} images, {summary['seconds']:.0f} s on {summary['device']}"
    )
    if "loss" in summary:
        figures = ", ".join(f"{name} {summary[name]:.3f}" for name in ("loss", "alignment", "uniformity"))
        yield f"last epoch: {figures} (alignment: 0 is best; uniformity: lower is more even)"
    if "neighbours" in summary:
        near = summary["neighbours"]
        yield f"the {near['k']} nearest training images give {percent(near['accuracy'])} of test images the right label"


def _tell_use(file: Path) -> None:
    from labelwise.fitting.choice import STATED
    from labelwise.train.pretraining import read_encoder

    encoder = read_encoder(file)
    options = [f"--set encoder.{key}={getattr(encoder, key)}" for key in STATED if getattr(encoder, key) is not None]
    note(f"Use it: labelwise fit DATA --set encoder.weights={file} --set encoder.frozen=true {' '.join(options)}")
