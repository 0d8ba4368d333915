"""Every recipe in the package can be read, its methods take its settings, and what is wrong in one is said."""

import tomllib
from pathlib import Path

import pytest

from labelwise.methods import Indicator
from labelwise.support.errors import UsageError
from labelwise_papers.recipe import Recipe, find_recipes, read_recipe, recipe_files
from labelwise_papers.reproduce.cells import Choice, cells_of
from labelwise_papers.reproduce.measures import MEASURES

EXPECTED = {
    "indicator": "table1 table2 table3 table6 table7 table8 table9 table10 table11 figure6 figure7 figure8",
    "zero_label": "table1 table2 table3 figure4",
    "clarel": "table1 table2 table3 figure2 figure3 figure4",
    "izf": "toy czsl gzsl",
    "prototype": "table1 table2 table3 figure1 figure2 fewshot",
}
TEXT = """
paper = "own"
table = "one"
title = "Two rows"
seeds = 2
measures = ["closed"]
cost = { minutes = 1, memory_mib = 100, machine = "a laptop" }

[figures.accuracy]

[data.digits]
source = "digits"
title = "Digits"

[data.other]
source = "finches"
title = "Finches"
stands_for = "digits"
settings = { batch = 8, optimizer = { lr = 0.5 } }

[settings]
epochs = 3
optimizer = { name = "adam", lr = 0.1 }

[[rows]]
name = "B-T"
method = "softmax"
expect.digits = { accuracy = 95.1 }

[[rows]]
name = "N=1"
method = "indicator"
settings = { negatives = 1, optimizer = { lr = 0.2 } }
adjust.other = { epochs = 4 }
data = ["other"]
"""


def recipe(text: str, tmp_path: Path) -> Recipe:
    path = tmp_path / "one.toml"
    path.write_text(text)
    return read_recipe(path)


def test_every_table_and_figure_has_a_recipe() -> None:
    wanted = {f"{paper}/{table}" for paper, tables in EXPECTED.items() for table in tables.split()}
    assert wanted <= set(recipe_files())


@pytest.mark.parametrize("name", recipe_files())
def test_a_recipe_is_valid_and_has_cells(name: str) -> None:
    (found,) = find_recipes(name)
    assert found.name == name
    cells = list(cells_of(found, Choice(), found.data))  # checks measures and their options
    assert len({cell.key for cell in cells}) == len(cells)
    for cell in cells:
        assert set(cell.measures) <= set(MEASURES)
        method = found.method(cell.row, cell.data)
        assert (method.name if method else "") == cell.row.method
    assert all(source.note for source in found.data.values() if source.stands_for), "a stand-in says how it differs"
    assert found.cost.machine


@pytest.mark.parametrize("name", recipe_files())
def test_testing_shows_the_side_that_training_shows(name: str) -> None:
    (recipe,) = find_recipes(name)
    for row in recipe.rows:
        for data in recipe.sets(row):
            method, side = recipe.method(row, data), recipe.data[data].size
            augment = getattr(method, "augment", None)
            if method is None or augment is None or side is None:
                assert augment is None or augment.size is None, (
                    f"{row.name} on {data}: the side of its pictures is not said"
                )
                continue
            tested = method.view.seen((3, side, side))
            assert tested == (3, *[augment.size or side] * 2), (
                f"{row.name} on {data}: give it view.crop = {augment.size}"
            )


def test_settings_come_from_recipe_data_and_row_in_this_order(tmp_path: Path) -> None:
    found = recipe(TEXT, tmp_path)
    first, second = found.rows
    assert [found.sets(row) for row in found.rows] == [["digits", "other"], ["other"]]
    plain, other, adjusted = (found.method(*pair) for pair in ((first, "digits"), (first, "other"), (second, "other")))
    assert [(m.epochs, m.batch, m.optimizer.lr) for m in (other, adjusted)] == [(3, 8, 0.5), (4, 8, 0.2)]  # type: ignore[union-attr]
    assert plain.optimizer.name == "adam"  # type: ignore[union-attr]
    assert plain.optimizer.lr == 0.1  # type: ignore[union-attr]


def test_a_stand_in_has_the_figures_of_what_it_stands_for(tmp_path: Path) -> None:
    found = recipe(TEXT, tmp_path)
    assert found.expected(found.rows[0], "other", "accuracy") == 95.1
    assert found.expected(found.rows[1], "other", "accuracy") is None


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("seeds = 2", "sedes = 2", 'No setting "sedes". Did you mean "seeds"'),
        ("seeds = 2", "", '"seeds" is missing'),
        ("seeds = 2", 'seeds = "two"', '"seeds" must be a whole number'),
        ("seeds = 2", "seeds = 0", "at least one row"),
        ('source = "digits"', 'sourc = "digits"', 'No setting "data.digits.sourc". Did you mean "source"'),
        ('method = "softmax"', 'method = "softmaxx"', 'Row "B-T" on "digits": No method "softmaxx". Did you mean "softmax"'),
        ("negatives = 1,", "negative = 1,", 'Row "N=1" on "other": No setting "negative". Did you mean "negatives"'),
        ("accuracy = 95.1", "acuracy = 95.1", 'names no figure of the recipe: "acuracy". Did you mean "accuracy"'),
        ("expect.digits", "expect.digit", 'names no data set of the recipe: "digit". Did you mean "digits"'),
        ('stands_for = "digits"', 'stands_for = "digts"', 'names no data set of the recipe: "digts"'),
        ('name = "N=1"', 'name = "B-T"', 'Two rows are called "B-T"'),
        ("[settings]", "[settings", "is no TOML"),
        ("seeds = 2", 'seeds = 2\nshared = { figures = ["H"] }', "names no paper that shares tables"),
        ("seeds = 2", "seeds = 2\nshared = { rows = [] }", 'No setting "shared.rows"'),
        ("seeds = 2", "seeds = 2\nshared = 3", '"shared"'),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in TEXT
    with pytest.raises(UsageError) as caught:
        recipe(TEXT.replace(old, new), tmp_path)
    assert words in str(caught.value)
    assert "one.toml" in str(caught.value)


def test_words_for_people_change_no_cell_and_settings_do(tmp_path: Path) -> None:
    def keys(text: str) -> list[str]:
        found = recipe(text, tmp_path)
        return [cell.key for cell in cells_of(found, Choice(), found.data)]

    before = keys(TEXT)
    assert keys(TEXT.replace('title = "Digits"', 'title = "Numerals"\nprotocol = "strict"\nnote = "Small."')) == before
    assert keys(TEXT.replace("accuracy = 95.1", "accuracy = 95.2")) == before
    for old, new in (("batch = 8", "batch = 9"), ('["closed"]', '["probe"]')):
        assert set(keys(TEXT.replace(old, new))) != set(before)
    changed = keys(TEXT.replace('title = "Digits"', 'title = "Digits"\nheld = 9'))
    assert [new == old for new, old in zip(changed, before, strict=True)] == [False, True, True] * 2


def test_wrong_measures_and_options_are_said(tmp_path: Path) -> None:
    wrong = recipe(TEXT.replace('["closed"]', '["close"]'), tmp_path)
    with pytest.raises(UsageError, match=r'no measure "close". Did you mean "closed"'):
        list(cells_of(wrong, Choice(), wrong.data))
    wrong = recipe(TEXT + "\n[options.robustness]\nepsilo = 0.1\n", tmp_path)
    with pytest.raises(UsageError, match=r'No setting "options.robustness.epsilo". Did you mean "epsilon"'):
        list(cells_of(wrong, Choice(), wrong.data))


def test_unknown_recipes_are_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'No recipe "indicator/tabel2". Did you mean "indicator/table2"'):
        find_recipes("indicator/tabel2")
    with pytest.raises(UsageError, match=r'Did you mean "clarel"'):
        find_recipes("clarrel")
    with pytest.raises(UsageError, match="Cannot read the recipe"):
        find_recipes(str(tmp_path / "none.toml"))
    assert [one.name for one in find_recipes("izf")] == [
        "izf/czsl",
        "izf/explore",
        "izf/flow",
        "izf/generated",
        "izf/gzsl",
        "izf/toy",
    ]


def test_tables_that_recipes_of_a_paper_share_come_before_their_own(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    text = """paper = "clarel"
table = "own"
title = "A table"
seeds = 1
measures = ["zero_shot"]
shared = { data = ["cub_strict", "cub"], figures = ["harmonic"] }
cost = { minutes = 1, memory_mib = 1, machine = "any" }
[figures.area]
digits = 3
[[rows]]
name = "eszsl"
method = "eszsl"
"""
    file.write_text(text)
    own, (first,) = read_recipe(file), find_recipes("clarel/table1")
    assert list(own.data) == ["cub_strict", "cub"]
    assert vars(own.data["cub_strict"]) == vars(first.data["cub_strict"])
    assert own.figures == {"harmonic": first.figures["harmonic"], "area": own.figures["area"]}
    file.write_text(text.replace("cub_strict", "cub_strikt"))
    with pytest.raises(UsageError, match=r'"cub_strikt". Did you mean "cub_strict"'):
        read_recipe(file)


def test_recipes_hold_no_code() -> None:
    for path in recipe_files().values():
        assert isinstance(tomllib.loads(path.read_text()), dict)
    folder = next(iter(recipe_files().values())).parents[1]
    assert not [path for path in folder.rglob("*") if path.is_file() and path.suffix not in (".toml", ".pyc")]


def test_figure_8_of_indicator_has_the_stages_of_the_appendix() -> None:
    """Appendix D.6: epochs, batch, rate and drops of each stage of the curriculum."""
    (recipe,) = find_recipes("indicator/figure8")
    (last,) = (row for row in recipe.rows if row.name == "N=9 to 51")
    method = recipe.method(last, "cub200")
    assert isinstance(method, Indicator)
    assert (*method.curriculum, method.negatives) == (9, 15, 24, 31, 41, 51)
    later = ((32, 0.005), (20, 0.005), (16, 0.005), (12, 0.0025), (10, 0.001))
    expected: list[tuple[int, int, float, tuple[int, ...]]] = [(500, 64, 0.1, (100, 200, 300, 400, 450))]
    expected += [(300, batch, rate, (100, 200, 250)) for batch, rate in later]
    assert [(each.epochs, each.batch, each.lr, each.drops or ()) for each in method.rounds] == expected
    rows = {row.name: recipe.method(row, "cub200") for row in recipe.rows if row.name.startswith("N=9 to")}
    for number, own in enumerate(rows.values(), 2):
        assert isinstance(own, Indicator)
        assert own.rounds == method.rounds[:number], "a shorter curriculum is the start of the longest"


def test_contrast_is_trained_on_the_changes_of_the_other_methods() -> None:
    """Appendix D.7: preprocessing is identical."""
    for name in ("indicator/table1", "indicator/table2", "indicator/table9", "indicator/table2_cub20"):
        (recipe,) = find_recipes(name)
        rows = {row.name: row for row in recipe.rows}
        for data in set(recipe.sets(rows["SCL"])) & set(recipe.sets(rows["N=9"])):
            contrast, plain = (recipe.method(rows[each], data) for each in ("SCL", "N=9"))
            assert getattr(contrast, "augment", None) == getattr(plain, "augment", 0), f"{name}, {data}"


def test_without_kappa_no_label_is_used_at_all() -> None:
    for name in ("clarel/table3", "clarel/figure4"):
        (recipe,) = find_recipes(name)
        rows = [row for row in recipe.rows if row.name.endswith("kappa 0.0")]
        assert rows
        for row in rows:
            settings = recipe.settings_of(row, "cub_strict")
            assert settings["class_weight"] == 0
            assert settings["label_texts"] == 0, f"{name}: label sentences tell the label"


def test_adversarial_rows_train_on_half_attacked_images() -> None:
    (recipe,) = find_recipes("prototype/table1")
    rows = [row for row in recipe.rows if "+AT" in row.name]
    assert len(rows) == 4
    assert {row.settings["adversarial"]["share"] for row in rows} == {0.5}


def test_figures_quoted_from_memory_say_so() -> None:
    for recipe in find_recipes("izf"):
        quoted = [row.name for row in recipe.rows if row.expect and "NBC" in row.name]
        assert not quoted or "memory" in recipe.note, f"{recipe.name}: {quoted}"
