"""Quick runs: a recipe with tiny data, tiny networks and a few steps, through the same code as the real one."""

from dataclasses import fields, replace
from typing import Any

from labelwise.methods.registry import method_class
from labelwise_papers.benchmarks import ENTRIES
from labelwise_papers.recipe import Recipe, Row, Source, merged
from labelwise_papers.reproduce.measures import QUICK

SMALL: dict[str, Any] = {
    "epochs": 1,
    "batch": 16,
    "hidden": 8,
    "code_size": 8,
    "blocks": 1,
    "restarts": 2,
    "search": 3,
    "smooth": 3,
    "shrink": 3.0,
    "own": 0.5,
    "head_epochs": 1,
    "encoder_epochs": 1,
    "generated": 3,
    "filters": [4, 4],
    "sentences": "words",
    "augment": {"size": None},
    "view": {"crop": None, "size": None},
    "clustering": {"steps": 2, "batch": 40, "iterations": 10},
    "matching": {"steps": 2, "batch": 40, "iterations": 10},
}
SMALL_ENCODER: dict[str, Any] = {"backbone": "auto", "width": 4, "weights": None, "frozen": False, "size": None}
LIGHTER = {
    "wrn28_10": "convnet",
    "resnet50": "resnet18",
    "efficientnet_lite0": "convnet",
}  # many layers take long, however thin
FEATURES = ("features", "described")
UNSEEN = ("retrieval", "verification", "episodes")  # measured on labels that training has no image of


def quick(recipe: Recipe) -> Recipe:
    """Return the recipe for a quick run: every row once, on tiny data of the kind of its first data set."""
    rows = tuple(_row(recipe, row) for row in recipe.rows)
    used = {name for row in rows for name in row.data}
    data = {name: _source(recipe, source) for name, source in recipe.data.items() if name in used}
    return replace(recipe, seeds=1, settings={}, options=_options(recipe), data=data, rows=rows)


def _options(recipe: Recipe) -> dict[str, dict[str, Any]]:
    names = {*recipe.measures, *(name for row in recipe.rows for name in row.measures)}
    return {name: merged(recipe.options.get(name, {}), QUICK.get(name, {})) for name in sorted(names)}


def _row(recipe: Recipe, row: Row) -> Row:
    data = recipe.sets(row)[0]
    source = recipe.data[data]
    values = recipe.settings_of(row, data)
    expect = {name: figures for name, figures in row.expect.items() if name == data}
    options = {name: merged(values, QUICK.get(name, {})) for name, values in row.options.items()}
    settings = merged(values, _small(row.method, values, _kind(recipe, source) not in FEATURES)) if row.method else {}
    return replace(row, data=(data,), settings=settings, adjust={}, expect=expect, options=options)


def _small(method: str, settings: dict[str, Any], pixels: bool) -> dict[str, Any]:
    """Return the settings that make a method quick, those that it has; features have no network to be made small."""
    known = {field.name for field in fields(method_class(method))}
    small = {key: value for key, value in SMALL.items() if key in known}
    if "epochs" in settings and settings["epochs"] == 0:
        small.pop("epochs", None)
    if "encoder" in known:
        backbone = settings.get("encoder", {}).get("backbone", "convnet")
        backbone = LIGHTER.get(backbone, backbone)
        small["encoder"] = {**SMALL_ENCODER, "backbone": backbone} if pixels else {**SMALL_ENCODER, "width": None}
    if settings.get("adversarial"):
        small["adversarial"] = {"steps": 1}
    if settings.get("rounds"):
        small["rounds"] = [{**one, "epochs": SMALL["epochs"], "batch": SMALL["batch"]} for one in settings["rounds"]]
    return small


def _source(recipe: Recipe, source: Source) -> Source:
    """Return tiny data in place of a data set."""
    if not source.source:
        return source
    return Source(
        source=f"tiny/{_kind(recipe, source)}", title=source.title, protocol=source.protocol, note=source.note
    )


def _kind(recipe: Recipe, source: Source) -> str:
    """Return which tiny data is like a data set."""
    entry = ENTRIES.get(source.source.partition("/")[0])
    what = entry.what if entry else "images"
    if source.features:
        return "features"
    if what == "images":
        return "unseen" if set(UNSEEN) & set(recipe.measures) else "pictures"
    return {"features": "described", "audio": "sound"}[what]
