"""Recipes for tests that run in milliseconds."""

from pathlib import Path

from labelwise_papers.recipe import Recipe, read_recipe

TEXT = """
paper = "own"
table = "{table}"
title = "A table of our own"
seeds = {seeds}
measures = ["zero_shot"]
cost = {{ minutes = 1, memory_mib = 100, machine = "a laptop" }}

[figures.harmonic]
title = "H"
digits = 1

[data.here]
source = "tiny/described"
title = "Here"

[data.absent]
source = "sun"
title = "Absent"
note = "Ask its authors."

[[rows]]
name = "eszsl"
method = "eszsl"
expect.here = {{ harmonic = 40.0 }}
expect.absent = {{ harmonic = 30.0 }}

[[rows]]
name = "devise"
method = "devise"
settings = {{ epochs = {epochs} }}
"""


def write_recipe(folder: Path, *, seeds: int = 2, epochs: int = 1, table: str = "one") -> Path:
    path = folder / f"{table}.toml"
    path.write_text(TEXT.format(seeds=seeds, epochs=epochs, table=table))
    return path


def tiny_recipe(folder: Path, *, seeds: int = 2, epochs: int = 1) -> Recipe:
    return read_recipe(write_recipe(folder, seeds=seeds, epochs=epochs))
