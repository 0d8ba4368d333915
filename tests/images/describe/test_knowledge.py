import json
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.knowledge import Knowledge, find_knowledge, read_knowledge, require, with_knowledge
from labelwise.images.describe.labels import Labels
from labelwise.images.sets.digits import digits
from labelwise.support.errors import DataError, UsageError

TABLE = """label,text_1,text_2,order,share,can fly,size
owl,"a round, brown bird",hunts at night,2,0.5,1,0.4
wren,a tiny bird,,1,0.25,1,0.1

kiwi,a bird without wings,lays large eggs,3,0.25,0,0.5
"""
TEXTS = (("a round, brown bird", "hunts at night"), ("a tiny bird",), ("a bird without wings", "lays large eggs"))


def written(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def check_birds(known: Knowledge) -> None:
    """The content of TABLE."""
    assert known.labels.names == ("owl", "wren", "kiwi")
    assert known.attributes == ("can fly", "size")
    assert known.labels.vectors is not None
    np.testing.assert_allclose(known.labels.vectors, torch.tensor([[1, 0.4], [1, 0.1], [0, 0.5]]))
    assert known.labels.texts == TEXTS
    assert known.labels.order == (1, 0, 2)
    assert known.labels.shares is not None
    assert known.labels.shares.tolist() == [0.5, 0.25, 0.25]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TABLE.encode(), id="plain"),
        pytest.param(b"\xef\xbb\xbf" + TABLE.encode(), id="BOM"),
        pytest.param(TABLE.replace("\n", "\r\n").encode(), id="CRLF"),
        pytest.param(
            TABLE.replace("round, ", "round; ").replace(",", ";").replace("round; ", "round, ").encode(), id=";"
        ),
        pytest.param(TABLE.replace("round, ", "@").replace(",", "\t").replace("@", "round, ").encode(), id="tab"),
        pytest.param(TABLE.replace("label", " Name ").replace("order", "Order").encode(), id="capitals"),
        pytest.param(TABLE.replace("size\n", "size,,\n").encode(), id="columns without a name or content"),
    ],
)
def test_a_table_in_the_usual_spellings(tmp_path: Path, text: bytes) -> None:
    check_birds(read_knowledge(written(tmp_path, "labels.csv", text)))


def test_toml_and_json_say_the_same_as_the_table(tmp_path: Path) -> None:
    toml = """
        attributes = ["can fly", "size"]
        [labels.owl]
        texts = ["a round, brown bird", "hunts at night"]
        vector = [1, 0.4]
        order = 2
        share = 0.5
        [labels."wren"]
        text = "a tiny bird"
        vector = [1, 0.1]
        order = 1
        share = 0.25
        [labels.kiwi]
        text = "a bird without wings"
        texts = ["lays large eggs"]
        vector = [0, 0.5]
        order = 3
        share = 0.25
    """
    check_birds(read_knowledge(written(tmp_path, "labels.toml", toml)))
    rows = zip(
        ("owl", "wren", "kiwi"), TEXTS, ([1, 0.4], [1, 0.1], [0, 0.5]), (2, 1, 3), (0.5, 0.25, 0.25), strict=True
    )
    labels = {name: {"texts": t, "vector": v, "order": o, "share": s} for name, t, v, o, s in rows}
    text = json.dumps({"attributes": ["can fly", "size"], "labels": labels})
    check_birds(read_knowledge(written(tmp_path, "labels.json", text)))


def test_names_come_first_and_other_labels_after_them(tmp_path: Path) -> None:
    known = read_knowledge(written(tmp_path, "labels.csv", TABLE), ["kiwi", "owl"])
    assert known.labels.names == ("kiwi", "owl", "wren")
    assert known.labels.texts == (TEXTS[2], TEXTS[0], TEXTS[1])
    assert known.labels.order == (2, 1, 0)


def test_accents_in_either_unicode_form_are_one_name(tmp_path: Path) -> None:
    path = written(tmp_path, "labels.csv", "label,a\ncafe\u0301,1\nb,2\n")
    assert read_knowledge(path, ["b", "caf\u00e9"]).labels.names == ("b", "caf\u00e9")


@pytest.mark.parametrize("name", ["similarity.csv", "alike.csv"])
def test_similarity_rows_follow_the_columns(tmp_path: Path, name: str) -> None:
    known = read_knowledge(written(tmp_path, name, ",owl,wren\nwren,0.3,1\nowl,1,0.2\n"), ["wren", "owl"])
    assert known.labels.similarity is not None
    np.testing.assert_allclose(known.labels.similarity, torch.tensor([[1, 0.3], [0.2, 1]]))


def test_one_label_a_line_is_an_order(tmp_path: Path) -> None:
    known = read_knowledge(
        written(tmp_path, "order.txt", "\ufefflow\r\n\r\nmiddle\r\nhigh\r\n"), ["high", "low", "middle"]
    )
    assert known.labels.order == (2, 0, 1)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0,0.5\n", "nan,0.5\n", r'Row 5 of ".*labels.csv", column "can fly": .*given "nan"'),
        ("0,0.5\n", "yes,0.5\n", r'Row 5 .*column "can fly": .*given "yes"'),
        ("0,0.5\n", "0,\n", r'Row 5 .*column "size": .*given ""'),
        ("0,0.5\n", "0,0.5,7\n", "Row 5 .*has 8 fields, the header 7"),
        ("kiwi,", "owl,", r'Row 5 .*label "owl" comes twice, first in Row 2'),
        ("kiwi,", ",", r'Row 5 .*column "label": it is empty'),
        ("a tiny bird", "", r'Row 3 .*has no "texts"'),
        ("1,0.25,1", ",0.25,1", r'Row 3 .*has no "order"'),
        ("1,0.25,1", "2,0.25,1", r'"order" .*ranks 1 to 3, each once; given 2, 2, 3'),
        ("1,0.25,1", "0,0.25,1", r'"order" .*ranks 1 to 3'),
        ("1,0.25,1", "1.5,0.25,1", r'"order" .*ranks 1 to 3'),
        ("1,0.25,1", "1,0.3,1", r'"share" .*sum to 1; it sums to 1\.05'),
        ("1,0.25,1", "1,-0.25,1", "Row 3 .*at least 0; given -0.25"),
        ("label,", "labl,", r'needs one column "label"'),
        (",size", ",can fly", 'more than one column "can fly"'),
        (",size", ",ORDER", 'the column "order" in small and in capital letters'),
        ("text_2", "txt", r'Row 2 .*column "txt": .*Did you mean "text"'),
    ],
)
def test_errors_name_row_and_column(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TABLE
    with pytest.raises(DataError, match=message):
        read_knowledge(written(tmp_path, "labels.csv", TABLE.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("labels.csv", "", "no columns"),
        ("labels.csv", "label,size\n", "describes no label"),
        (
            "labels.toml",
            "[labels.owl]\nvector = [1]\n[labels.wren]\nvector = [1, 2]",
            'Label "wren" .*2 numbers, not 1',
        ),
        ("labels.toml", "[labels.owl]\nvector = [1, true]", r'Label "owl" .*"vector\[1\]": .*given "True"'),
        ("labels.toml", "[labels.owl]\nvectr = [1]", 'unknown key "vectr".*Did you mean "vector"'),
        ("labels.toml", "[labels.owl]\nvector = 1", "a list was expected; given 1"),
        ("labels.toml", '[labels.owl]\ntexts = [" "]', "each must be a sentence"),
        ("labels.toml", "[labels]\nowl = 3", "must be a table"),
        ("labels.toml", "[owl]\norder = 3", 'needs a table "labels"'),
        ("labels.toml", "[labels.owl", "not well-formed"),
        ("labels.json", '{"labels": {"owl": {}, "owl": {}}}', '"owl" is given twice'),
        (
            "similarity.csv",
            ",owl,wren\nowl,1,0\nwrem,0,1\n",
            'Row 3 .*"wrem" is not in the first row. Did you mean "wren"',
        ),
        ("similarity.csv", ",owl,wren\nowl,1,0\nowl,0,1\n", 'Row 3 .*"owl" comes twice'),
        ("similarity.csv", ",owl,wren\nowl,1,0\n", "no row for: wren"),
        ("similarity.csv", ",owl,wren\nowl,1,x\nwren,0,1\n", 'Row 2 .*column "wren": .*given "x"'),
        ("order.txt", "owl\nwren\nowl\n", "named twice: owl"),
        ("order.txt", b"\xff\xfe", "not UTF-8"),
        ("labels.yaml", "", "is a .csv, .toml, .json or .txt file"),
    ],
)
def test_errors_of_other_files(tmp_path: Path, name: str, text: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_knowledge(written(tmp_path, name, text))


def test_a_label_that_is_not_described_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, "labels.csv", TABLE)
    with pytest.raises(
        DataError, match=r'does not describe these labels: wrens\. Did you mean "wren"\? Add a row.*"wrens"'
    ):
        read_knowledge(path, ["owl", "wrens", "kiwi"])
    with pytest.raises(DataError, match="Cannot read"):
        read_knowledge(tmp_path / "none.csv")


def test_files_beside_the_data_are_put_together(tmp_path: Path) -> None:
    assert find_knowledge(tmp_path, ["owl", "wren"]) is None
    written(tmp_path, "labels.csv", "label,size\nowl,4\nwren,1\n")
    written(tmp_path, "labels.toml", '[labels.wren]\ntext = "tiny"\n[labels.owl]\ntext = "round"\n')
    written(tmp_path, "similarity.csv", ",wren,owl\nwren,1,0.3\nowl,0.2,1\n")
    written(tmp_path, "order.txt", "wren\nowl\n")
    known = find_knowledge(tmp_path, ["wren", "owl"])
    assert known is not None
    labels = known.labels
    assert (labels.names, labels.texts, labels.order) == (("wren", "owl"), (("tiny",), ("round",)), (0, 1))
    assert labels.vectors is not None
    assert labels.similarity is not None
    assert labels.vectors.tolist() == [[1], [4]]
    np.testing.assert_allclose(labels.similarity, torch.tensor([[1, 0.3], [0.2, 1]]))
    assert known.attributes == ("size",)


def test_files_that_disagree_are_an_error(tmp_path: Path) -> None:
    written(tmp_path, "labels.csv", "label,size,order\nowl,4,1\nwren,1,2\n")
    order = written(tmp_path, "order.txt", "wren\nowl\n")
    with pytest.raises(DataError, match=r'Both ".*labels.csv" and ".*order.txt" give an order'):
        find_knowledge(tmp_path)
    order.write_text("wren\nowls\n")
    with pytest.raises(DataError, match=r'order.txt" does not describe these labels: owl\. Did you mean "owls"'):
        find_knowledge(tmp_path)
    order.write_text("wren\nowl\nkiwi\n")
    with pytest.raises(DataError, match=r'labels.csv" does not describe these labels: kiwi'):
        find_knowledge(tmp_path)


def birds(*names: str) -> Dataset:
    split = Split(images=torch.zeros(2, 3), targets=torch.tensor([0, 1]))
    return Dataset(name="birds", labels=Labels(names=names), splits={"train": split})


def test_new_labels_have_no_images_and_targets_keep_their_meaning(tmp_path: Path) -> None:
    known = read_knowledge(written(tmp_path, "labels.csv", TABLE))
    data = with_knowledge(birds("wren", "kiwi"), known)
    assert data.labels.names == ("wren", "kiwi", "owl")
    assert data.labels.texts == (TEXTS[1], TEXTS[2], TEXTS[0])
    assert data.split("train").targets.tolist() == [0, 1]
    with pytest.raises(DataError, match="does not describe these labels: dodo"):
        with_knowledge(birds("wren", "dodo"), known)


def test_what_the_data_knew_stays() -> None:
    data = digits()
    names = tuple(reversed(data.labels.names))
    known = Knowledge(labels=Labels(names=names, vectors=torch.arange(10.0)[:, None]))
    after = with_knowledge(data, known)
    assert after.labels.order == tuple(range(10))
    assert after.labels.vectors is not None
    assert after.labels.vectors.flatten().tolist() == list(range(9, -1, -1))
    more = Knowledge(labels=Labels(names=(*names, "ten"), vectors=torch.zeros(11, 1)))
    assert with_knowledge(data, more).labels.order is None


def test_require_says_what_to_add() -> None:
    labels = Labels(names=("owl", "wren"), order=(0, 1))
    require(labels, "order", "Method x")
    for piece, message in {
        "texts": 'Method x reads sentences, but these labels have none. Add a column "text" to labels.csv next to the data.',
        "vectors": "Add attribute columns .* to labels.csv",
        "shares": 'Add a column "share" to labels.csv',
        "similarity": "first row and column, as similarity.csv next to",
    }.items():
        with pytest.raises(DataError, match=message):
            require(labels, piece, "Method x")
    with pytest.raises(UsageError, match='Did you mean "texts"'):
        require(labels, "text", "Method x")


def test_shares_that_miss_one_by_rounding_are_normalised(tmp_path: Path) -> None:
    shares = read_knowledge(
        written(tmp_path, "labels.csv", "label,share\na,0.3333\nb,0.3333\nc,0.3333\n")
    ).labels.shares
    assert shares is not None
    assert shares.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("labels.csv", "label,parent,parent_2,flies\nowl,raptor,bird,1\nkite,raptor,bird,1\npike,fish,,0\n"),
        ("labels.csv", "label,Class,Genus,flies\nowl,bird,raptor,1\nkite,bird,raptor,1\npike,,fish,0\n"),
        (
            "labels.toml",
            '[labels.owl]\nparents = ["raptor", "bird"]\nvector = [1]\n[labels.kite]\nparents = ["raptor", "bird"]\n'
            'vector = [1]\n[labels.pike]\nparent = "fish"\nvector = [0]\n',
        ),
    ],
)
def test_parents_are_read_from_the_nearest_to_the_broadest(tmp_path: Path, name: str, text: str) -> None:
    labels = read_knowledge(written(tmp_path, name, text)).labels
    assert labels.parents == (("raptor", "bird"), ("raptor", "bird"), ("fish",))
    assert labels.vectors is not None
    assert labels.vectors.tolist() == [[1], [1], [0]]


def test_a_rank_of_numbers_is_an_attribute_or_the_order(tmp_path: Path) -> None:
    labels = read_knowledge(written(tmp_path, "labels.csv", "label,order,class\nowl,2,0\nwren,1,1\n")).labels
    assert (labels.order, labels.parents) == ((1, 0), None)
    named = read_knowledge(written(tmp_path, "labels.csv", "label,order\nowl,Strigiformes\nwren,Passeriformes\n"))
    assert (named.labels.order, named.labels.parents) == (None, (("Strigiformes",), ("Passeriformes",)))


def test_parents_that_are_no_tree_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r'labels.csv".*"x" is in y for "owl" and in z for "wren"'):
        read_knowledge(written(tmp_path, "labels.csv", "label,parent,parent_2\nowl,x,y\nwren,x,z\n"))
    with pytest.raises(DataError, match="must be a name"):
        read_knowledge(written(tmp_path, "labels.json", '{"labels": {"owl": {"parents": [3]}}}'))
