"""Answers equal the golden files, and saved classifiers load.

The weights are those of the first edition, and so are the answers but for those that CHANGELOG.md names. Only public names are used, see
``outside``.
"""

import pytest

import labelwise as lw
from tests.golden import expected
from tests.golden.cases import CASES, answer
from tests.golden.fits import FITS, FOLDERS, OTHERS
from tests.golden.outside import HERE

MOST = 25  # differences that are told
WRITTEN = (
    "fit/softmax",
    "fit/resnet12",
    "fit/vgg",
    "fit/sounds",
)  # by torch.export; other networks: tests/train/test_export_encoder.py
EXTRAS = {"route": "fastapi", "verb/export": "onnxruntime", "api/data": "pyarrow", "verb/data-check": "pyarrow"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.torch_export] if case in WRITTEN else []) for case in CASES]
)
def test_answers_are_golden(case: str) -> None:
    wanted = expected.read(case)
    for kind, package in EXTRAS.items():
        if case.startswith(kind):
            pytest.importorskip(package)
    found = expected.differences(case, wanted, answer(case))
    assert not found, "\n".join([f"{len(found)} differences from {expected.path_of(case).name}", *found[:MOST]])


def test_every_golden_file_is_asked_about() -> None:
    written = {str(file.relative_to(expected.FOLDER).with_suffix("")) for file in expected.FOLDER.rglob("*.json")}
    assert written == set(CASES)


def test_every_method_has_a_kept_classifier_and_a_run() -> None:
    assert set(lw.methods.METHODS) <= set(FOLDERS)
    assert set(lw.methods.METHODS) <= set(FITS)
    kept = {folder.name.removesuffix(".lw") for folder in (HERE / "folders").glob("*.lw")}
    assert kept == {*FOLDERS, *OTHERS}


@pytest.mark.parametrize(
    ("wanted", "found", "said"),
    [
        ({"a": 1.0}, {"a": 1.0001}, "1.0 became 1.0001"),
        ({"a": 1.0}, {"a": 1}, "became 1"),
        ({"a": 1}, {"a": 2}, "1 became 2"),
        ({"a": 1}, {"a": True}, "became true"),
        ({"a": None}, {}, "is missing"),
        ({}, {"b": 0}, '"b" is new'),
        ({"a": "x"}, {"a": "y"}, "became"),
        ([1, 2], [1], "2 entries became 1"),
        ({"printed": ["99.1 %"]}, {"printed": ["99.3 %"]}, "became"),
        ({"printed": ["5 of 6"]}, {"printed": ["5 of 7"]}, "became"),
    ],
)
def test_what_differs_is_told(wanted: object, found: object, said: str) -> None:
    (difference,) = expected.differences("verb/none", wanted, found)
    assert said in difference


def test_what_is_the_same_is_left_alone() -> None:
    wanted = {"a": [1.0, float("nan")], "printed": ["99.1 %, 12 of 12"], "b": {"c": None}}
    found = {"b": {"c": None}, "a": [1.000001, float("nan")], "printed": ["99.2 %, 12 of 12"]}
    assert expected.differences("verb/none", wanted, found) == []


def test_a_key_may_be_new_where_it_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(expected.ADDED, "verb/none", frozenset({"b"}))
    assert expected.differences("verb/none", {"a": {}}, {"a": {"b": 1}, "b": 2}) == []
    assert len(expected.differences("verb/none", {"a": {}}, {"a": {}, "c": 2})) == 1


def test_a_missing_golden_file_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="verb/none"):
        expected.read("verb/none")
