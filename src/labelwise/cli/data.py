"""Verbs about data: list, check, split, shard, encode; plug-ins add others."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import labelwise as lw
from labelwise.cli.inputs import open_data, open_data_for, open_model, tell_groups, tell_skipped
from labelwise.cli.jobs import is_job, make_job, run_duplicates, run_job
from labelwise.cli.options import EncoderName, Group, Paths, Size, add_verb, refuse_workers, shared_options
from labelwise.cli.output import note, one_line, plain_table, show, styled
from labelwise.support.errors import UsageError
from labelwise.support.plugins import plugins

app = typer.Typer(name="data", help="Find, check, split, shard and encode data.", no_args_is_help=True)
for verb in (verb for plugin in plugins() for verb in plugin.DATA_VERBS):
    add_verb(app, verb)

Data = Annotated[str, Argument(help="A folder, table, pack, features, or the name of a set.")]


def list_sets() -> None:
    """List the data sets that load by name."""
    feature_sets = sorted(lw.data.EMBEDDED)
    rows = [row for plugin in plugins() for row in plugin.rows(shared_options().root)]
    table = plain_table("name", "", ">labels", ">train", ">test", "found")
    for name in feature_sets:
        table.add_row(name, "images", "", "", "", styled(("embedded", "green")))
    for row in rows:
        counts = (f"{row[n]:,}" if row[n] else "" for n in ("classes", "train", "test"))
        place = Path(row["found"]).name if row["found"] else styled(("missing", "dim"))
        table.add_row(row["name"], row["what"], *counts, place)
    show({"embedded": feature_sets, "benchmarks": rows}, table)
    if not shared_options().json:
        note("labelwise data where NAME shows what to download, where to put it, and its licence.")


def sample(
    folder: Annotated[Path, Argument(help="The folder to write below.", show_default=False)] = Path(),
) -> None:
    """Write the photos of drawn birds that the tutorials use."""
    from labelwise.images.sets.sample import FOLDERS, write_sample

    photos = write_sample(folder)
    lines = (styled((str(folder / name), "bold"), f": {FOLDERS[name]} ({count})") for name, count in photos.items())
    show({"folder": str(folder), "photos": dict(photos)}, *lines)


def check(
    data: Data,
    sheet: Annotated[Path | None, Option("--out", help="A .png with some images of each label.")] = None,
    size: Size = None,
) -> None:
    """Check data: counts, unreadable files, duplicates, leaks."""
    from labelwise.images.overview import contact_sheet, inspect, lines, missing_pieces
    from labelwise.methods.registry import METHODS, needs_of

    dataset = _read(data, size)
    description = inspect(dataset)
    needs = {name: needs_of(name) for name in METHODS}
    if sheet is not None:
        contact_sheet(dataset, sheet)
        note(f"Wrote {sheet}")
    missing = {name: list(pieces) for name, pieces in missing_pieces(description, needs).items()}
    show({**asdict(description), "methods": missing}, *map(one_line, lines(description, needs)))


def split(
    data: Data,
    out_csv: Annotated[Path, Option("--out", help="The CSV to write: file, label, split.")],
    kind: Annotated[str, Option(help="stratified, grouped, domain or zero-shot.")] = "stratified",
    held_out: Annotated[str | None, Option(help="The domain to hold out, with --kind domain.")] = None,
    group: Group = None,
) -> None:
    """Split data and save the split as a table for --splits."""
    splits = lw.data.divide(_read(data, None), kind, held_out, shared_options().seed, group)
    tell_groups(splits)
    lw.data.write_split(splits, out_csv)
    counts = ", ".join(f"{len(part)} {name}" for name, part in splits.splits.items())
    sizes = {name: len(part) for name, part in splits.splits.items()}
    show({"out": str(out_csv), "images": sizes}, styled((str(out_csv), "bold"), f": {counts}"))


def shard(
    data: Data,
    out_folder: Annotated[str, Option("--out", help="The folder or address to write the tar files to.")],
    megabytes: Annotated[float, Option(help="Approximate size of a shard.")] = 256,
) -> None:
    """Write images as WebDataset shards, to stream them."""
    from labelwise.images.sharding import check_new, write_shards
    from labelwise.images.sources.build import readable

    check_new(out_folder)
    dataset = readable(lw.data.load(data, root=shared_options().root))
    tell_skipped(dataset.skipped)
    shards = write_shards(dataset, out_folder, megabytes=megabytes, seed=shared_options().seed)
    words = f": {shards.images} images in {shards.shards} shards, {shards.bytes / 1e6:,.1f} MB"
    show({**asdict(shards), "folder": out_folder}, styled((out_folder, "bold"), words))


def encode(
    data: Data,
    out_npz: Annotated[Path, Option("--out", help="The .npz file to write, or a .parquet folder.")],
    *,
    encoder: EncoderName = "auto",
    size: Size = None,
) -> None:
    """Encode images once, for other tools and experiments."""
    from labelwise.fitting.encoding import check_features_file, write_features
    from labelwise.images.sources.paths import may_name_shards

    if is_job(out_npz):
        if not Path(encoder).is_dir() or size is not None or not (Path(data).is_dir() or may_name_shards(data)):
            raise UsageError(
                "A .parquet folder takes a folder of images, or shards, and a saved classifier: --encoder birds.lw, without --size."
            )
        run_job(make_job("encode", Path(encoder), out_npz), [Path(data)])
        return
    refuse_workers()
    check_features_file(out_npz)
    features = read_features(data, encoder, size)
    write_features(features, out_npz)
    images = sum(len(part) for part in features.splits.values())
    document = {"out": str(out_npz), "images": images, "features": features.features}
    show(document, styled((str(out_npz), "bold"), f": {images} images, {features.features} features each"))


def duplicates(
    paths: Paths,
    out_folder: Annotated[Path, Option("--out", help="The .parquet folder to write.")],
    *,
    likeness: Annotated[
        float | None, Option(min=0.5, max=1.0, help="Least similarity, up to 1; 0.97 by default.")
    ] = None,
) -> None:
    """Find near-duplicates among very many images."""
    run_duplicates(paths, out_folder, likeness)


def _read(data: str, size: int | None) -> "lw.data.Dataset":
    """Return the data with images of the size that the user asks for, or of the size that ``fit`` uses by default."""
    from labelwise.images.sources.build import readable

    return readable(open_data(data, None, size=size))


def read_features(data: str, encoder: str, size: int | None) -> "lw.data.Dataset":
    """Return the data as features: unchanged, or by a saved classifier, weights from ``pretrain``, or a backbone."""
    from labelwise.core.load import ABOUT
    from labelwise.encoders.choose import encoder_name
    from labelwise.encoders.efficientnet import VARIANTS
    from labelwise.encoders.registry import DEFAULT, is_fixed, open_encoder
    from labelwise.fitting.encoding import encode_by, encode_with

    name = DEFAULT if encoder == "auto" else encoder
    is_classifier = (Path(encoder) / ABOUT).is_file()  # a saved classifier, whose folder also holds an encoder
    is_fixed_encoder = not is_classifier and is_fixed(name)
    if is_classifier:
        classifier = open_model(Path(encoder))
        shape = classifier.shape
        if size is not None and (len(shape) != 3 or size != shape[1]):
            raise UsageError(
                f'"{encoder}" takes images of shape {list(shape)}, but --size is {size}. Leave out --size.'
            )
        return encode_with(open_data_for(classifier, data), classifier)
    if (not is_fixed_encoder and name not in VARIANTS) or shared_options().device not in ("auto", "cpu"):
        return _by_torch(data, encoder, size)
    dataset = open_data(data, open_encoder(name).shape[1], size=size)
    if dataset.features and encoder == "auto":
        return dataset  # already features
    if encoder == "auto" and size is None and (best := encoder_name(sum(map(len, dataset.splits.values())))) != name:
        return read_features(data, best, None)
    pixels = None if is_fixed_encoder or dataset.features else dataset.shape
    return encode_by(dataset, open_encoder(name, pixels))


def _by_torch(data: str, encoder: str, size: int | None) -> "lw.data.Dataset":
    """Return the data as features, by weights from ``pretrain`` or by a backbone."""
    from labelwise.fitting.torch_encoding import encode_dataset
    from labelwise.train.networks.encoder import Encoder
    from labelwise.train.pretraining import read_encoder

    is_weights = Path(encoder).suffix.lower() == ".safetensors"
    settings = read_encoder(encoder) if is_weights else Encoder(backbone=encoder, frozen=True)
    dataset = open_data(data, settings.side() or 224, size=size)
    wants_encoder = not dataset.features or encoder != "auto"
    return encode_dataset(dataset, settings, shared_options().device) if wants_encoder else dataset


VERBS: dict[str, Callable[..., None]] = {
    "list": list_sets,
    "sample": sample,
    "check": check,
    "split": split,
    "shard": shard,
    "encode": encode,
    "duplicates": duplicates,
}
for word, command in VERBS.items():
    add_verb(app, command, word)
