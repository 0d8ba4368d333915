"""Whatever labels and files are called: every verb shows the name, and nothing of it is obeyed."""

import csv
import io
import json
import logging
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

import labelwise as lw
from labelwise.cli.output import Terminal, plain_table, styled
from labelwise.cli.verbs import app
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.reporting.page import report
from labelwise.server.running import start_log
from labelwise.server.settings import Service
from labelwise.support.errors import UsageError
from labelwise.support.text import UNSAFE, as_json, caption, from_cell, to_cell, visible
from tests import once
from tests.conftest import blobs, quick
from tests.generating import generating
from tests.hostile.names import HOSTILE, REFUSED
from tests.methods.test_zero_label import STRUCTURE, world
from tests.pixels_of import px
from tests.server.asking import serving

SOURCES = Path(lw.__file__).parents[1]


def hostile_data() -> Dataset:
    """Four colours under hostile names; the longest among them."""
    plain = blobs(4)
    names = (HOSTILE[0], HOSTILE[2], HOSTILE[5], HOSTILE[-1])
    return Dataset(name="[red]data", labels=Labels(names=names, vectors=plain.labels.vectors), splits=plain.splits)


@once.once
def hostile_model() -> str:
    folder = once.folder() / "hostile.lw"
    lw.save(lw.fit(hostile_data(), quick("softmax", epochs=4), lw.Run(device="cpu", progress=False)), folder)
    return str(folder)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each label, with names of files that bite as well."""
    root = tmp_path_factory.mktemp("own") / "[bold]own\x1b[1m"
    split, rows = hostile_data().split("test"), []
    for row in range(24):
        label = hostile_data().labels.names[int(split.targets[row])]
        folder = root / label.replace("/", "_")[:100]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{row} [red]\u202e\x1b[31m{(row % 3 and '=x') or '-y'}.png"
        Image.fromarray(px(split)[row].permute(1, 2, 0).numpy()).save(file)
        rows.append((str(file.relative_to(root)), label))
    with (root / "[red]\x1b[1mtable.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("path", "label"), *rows])
    return root


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "800"}, input="q\n")
    assert result.exception is None or isinstance(result.exception, SystemExit), (words, result.exception)
    assert result.exit_code == 0, result.output
    return result.output


def flat(text: str) -> str:
    return re.sub(r"\s+", "", text)


def shows(output: str, name: str) -> bool:
    """Whether a name can be read off an output whose lines may be folded."""
    return output.count("x") >= len(name) if len(name) > 1000 else flat(visible(name)) in flat(output)


def check_harmless(output: str) -> None:
    assert not UNSAFE.search(output), repr(UNSAFE.search(output))


def test_every_verb_shows_hostile_names(pictures: Path, tmp_path: Path) -> None:
    model, names = Path(hostile_model()), hostile_data().labels.names
    one, table = next(pictures.rglob("*.png")), next(pictures.glob("*.csv"))
    verbs: dict[str, tuple[object, ...]] = {
        "classify": (model, pictures, "--top", 4, "--device", "cpu"),
        "ask": (model, one, names[0]),
        "verify": (model, one, one),
        "retrieve": (model, one, "--gallery", pictures),
        "outliers": (model, pictures),
        "evaluate": (model, table, "--split", "all"),
        "data check": (table,),
        "data split": (table, "--out", tmp_path / "[red]split.csv"),
        "teach": (model, "[blue]new", one, "--out", tmp_path / "[red]taught.lw"),
        "forget": (model, names[0], "--out", tmp_path / "[red]left.lw"),
        "calibrate": (model, table, "--out", tmp_path / "[red]calibrated.lw"),
        "report": (model, table, "--out", tmp_path / "[red]page.html"),
    }
    shown = {"classify": names, "ask": names[:1], "verify": [str(one)], "retrieve": [one.name], "outliers": [one.name]}
    shown |= {"teach": ["[blue]new", "[red]taught.lw"], "forget": names[:1], "data split": ["[red]split.csv"]}
    for verb, words in verbs.items():
        output = run(*verb.split(), *words)
        check_harmless(output)
        for name in shown.get(verb, ()):
            assert shows(output, name), (verb, name)
        document = verb in ("classify", "ask", "verify", "retrieve", "outliers", "evaluate", "data check")
        if document:
            output = run(*verb.split(), *words, "--json")
            check_harmless(output)
            json.loads(output[output.index("{") :])


def test_verbs_that_train_and_look_inside_show_hostile_names(pictures: Path, tmp_path: Path) -> None:
    model, names = Path(hostile_model()), hostile_data().labels.names
    one, table, out = next(pictures.rglob("*.png")), next(pictures.glob("*.csv")), tmp_path / "[red]out\x1b[1m"
    out.mkdir()
    classifier = lw.load(model)
    lw.save(replace(classifier, labels=replace(classifier.labels, order=(3, 1, 0, 2))), out / "ranks.lw")
    facts = world()
    facts = replace(facts, name="[red]", labels=replace(facts.labels, names=(*names, HOSTILE[4])))
    lw.save(lw.fit(facts, STRUCTURE, lw.Run(device="cpu")), out / "named.lw")
    small = ("--size", 8, "--device", "cpu", "--seed", 1)
    words = ("--method", "softmax", "--encoder", "none", "--set", "epochs=1", "--set", "encoder.width=4", *small)
    verbs: dict[str, tuple[object, ...]] = {
        "fit": (table, "--out", out / "fit.lw", *words),
        "pretrain": (
            pictures,
            "--out",
            out / "encoder.safetensors",
            "--set",
            "epochs=1",
            "--set",
            "encoder.width=4",
            *small,
        ),
        "rank": (out / "ranks.lw", one),
        "name": (out / "named.lw",),
        "explain": (model, one, names[0], "--not", names[1], "--out", out / "map.png"),
        "attack": (model, table, "--split", "all", "--images", 2),
        "export": (model, "--out", out / "model.onnx"),
        "serve": (model, "--bake", out / "baked.lw"),
    }
    shown = {"fit": [out.name], "rank": names[:1], "name": names, "explain": names[:2], "serve": ["baked.lw"]}
    for verb, rest in verbs.items():
        output = run(verb, *rest)
        check_harmless(output)
        for name in shown.get(verb, ()):
            assert shows(output, name), (verb, name)
    assert lw.load(out / "fit.lw").labels.names == tuple(sorted(names)), "whatever a label is called, it is learnt"


def test_imagine_shows_hostile_names(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    labels = hostile_data().labels
    made = generating(labels, (3, 8, 8), frozenset(labels.names[:2]))
    monkeypatch.setattr("labelwise.cli.imagine.open_model", lambda *_: made)
    table = next(pictures.glob("*.csv"))
    output = run("imagine", "model", table, "--split", "all", "--count", 5, "--out", tmp_path / "[red]sheets")
    check_harmless(output)
    assert all(shows(output, name) for name in labels.names[:2])


def test_a_service_answers_with_hostile_names(pictures: Path, tmp_path: Path) -> None:
    names, content = hostile_data().labels.names, next(pictures.rglob("*.png")).read_bytes()
    shutil.copytree(hostile_model(), tmp_path / "m.lw")
    with serving(tmp_path / "m.lw") as client:
        picture: dict[str, Any] = {"content": content, "headers": {"Content-Type": "image/png"}}
        answers = [client.post("/teach", params={"label": HOSTILE[9]}, **picture)]
        answers += [client.post("/classify?top=100", **picture), client.get("/labels"), client.get("/card")]
        answers += [
            client.post("/ask", params={"label": names[1]}, **picture),
            client.post("/forget", params={"label": "\x1b[31m"}),
        ]
        for answer in answers:
            assert answer.headers["content-type"].startswith("application/json")
            assert answer.headers["x-content-type-options"] == "nosniff"
            check_harmless(answer.text)
        assert [answer.status_code for answer in answers] == [200] * 5 + [404]
        assert {row["name"] for row in answers[2].json()["labels"]} == {*names, HOSTILE[9]}
        assert {row["label"] for row in answers[1].json()["top"]} == {*names, HOSTILE[9]}


class _Tags(HTMLParser):
    """The tags of a page, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.events: list[str] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.events += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_a_report_shows_hostile_names_as_text(tmp_path: Path) -> None:
    plain = blobs(4)
    names = HOSTILE[9:13]
    splits = {n: Split(images=s.images, targets=s.targets) for n, s in plain.splits.items()}
    data = Dataset(name=HOSTILE[9], labels=Labels(names=names), splits=splits)
    classifier = lw.fit(data, quick("softmax", epochs=2), lw.Run(device="cpu", progress=False))
    report(classifier, data, tmp_path / "page.html")
    page = _Tags()
    page.feed((tmp_path / "page.html").read_text())
    assert "img" not in page.tags or not page.events
    assert page.tags.count("script") == (tmp_path / "page.html").read_text().count("<script")
    assert page.events == []
    text = " ".join(page.words)
    assert all(name in text for name in names[1:3])


@pytest.mark.parametrize("name", HOSTILE)
def test_a_cell_a_line_and_a_picture_show_a_name(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from matplotlib.figure import Figure

    Terminal().print(plain_table("label", rows=[(name,), (styled((name, "bold")),)]))
    output = capsys.readouterr().out
    check_harmless(output)
    assert flat(output).count(flat(visible(name))) >= 2
    figure = Figure()
    figure.suptitle(caption(name), parse_math=True)
    figure.savefig(io.BytesIO())


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_names_come_back(name: str) -> None:
    assert from_cell(to_cell(name)) == name
    assert not re.match(r"[=+\-@\t\r]", to_cell(name))
    assert json.loads(as_json({"name": name})) == {"name": name}
    check_harmless(as_json(name))
    assert not re.search(r"[\n\t]", visible(name))
    as_json(name).encode()
    visible(name).encode()


def test_a_split_with_formulas_is_written_harmless_and_read_back(tmp_path: Path) -> None:
    names = tuple(name for name in HOSTILE if "\x07" not in name)[:12]
    images = torch.randint(0, 255, (len(names) * 9, 3, 8, 8), dtype=torch.uint8)
    targets = torch.arange(len(names)).repeat(9)
    files = tuple(f"={i}.png" for i in range(len(targets)))
    part = Split(images=images, targets=targets, files=files)
    data = Dataset(name="x", labels=Labels(names=names), splits={"train": part})
    divided = lw.data.divide(data, "stratified", None, 0)
    lw.data.write_split(divided, tmp_path / "split.csv")
    rows = list(csv.reader(io.StringIO((tmp_path / "split.csv").read_text(), newline="")))
    assert not [cell for row in rows for cell in row if re.match(r"[=+\-@\t\r]", cell)]
    again = lw.data.apply_split(data, tmp_path / "split.csv")
    assert {n: s.files for n, s in again.splits.items()} == {n: s.files for n, s in divided.splits.items()}


@pytest.mark.parametrize("kind", ["plain", "json"])
def test_a_log_has_one_line_for_each_record(kind: Literal["plain", "json"], capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.getLogger("labelwise.server")
    before, propagate = log.handlers[:], log.propagate
    try:
        start_log(Service(model=Path("x.lw"), log=kind))
        log.info('taught "%s"', "x\n2026 INFO forged \x1b[31m\u202e")
    finally:
        log.handlers[:], log.propagate = before, propagate
    error = capsys.readouterr().err
    check_harmless(error)
    assert len(error.splitlines()) == 1


def test_nothing_else_makes_rich_text() -> None:
    """A verb that wrote markup, or made rich text by itself, would forget what ``output`` sees to."""
    own = ("cli/output.py", "demo.py", "train/progress_bar.py")
    for path in [*SOURCES.glob("labelwise*/**/*.py")]:
        if not str(path).endswith(own):
            text = path.read_text()
            assert not re.search(r"\[/\]|\bText\(|Text\.(assemble|from_markup)|from rich import print", text), path
    for path in SOURCES.glob("labelwise/**/*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", path.read_text()), path


@pytest.mark.parametrize("name", REFUSED)
def test_names_that_steer_a_terminal_are_refused(name: str) -> None:
    data = replace(hostile_data(), labels=Labels(names=(name, *HOSTILE[:3])))
    with pytest.raises(UsageError, match=r"control character|longer than 200"):
        lw.fit(data, quick("softmax"), lw.Run(device="cpu", progress=False))
