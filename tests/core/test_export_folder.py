"""An exported folder answers as the classifier does, in Python without labelwise and in a browser."""

import functools
import http.server
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import labelwise as lw
from labelwise.calls import as_dataset
from labelwise.core.calibration import Calibration
from labelwise.core.coarser import Tree
from labelwise.core.scores import Scores
from labelwise.images.describe.labels import Labels
from labelwise.support.errors import UnsupportedError, UsageError

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
WEB = "LABELWISE_ONNX_WEB"  # the folder of onnxruntime-web, where it is not in the cache
VIEWS = {"whole": {}, "crop": {"crop": 0.875, "fit": "stretch", "mirror": True}, "cubic": {"fit": "crop bicubic"}}
BY_BROWSER = 0.02  # by which probabilities may differ where Pillow decodes a JPEG at a fraction of its size


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    folder, draws = tmp_path_factory.mktemp("photos"), np.random.default_rng(0)
    paths, names = [], []
    for name, colour in {"red": (200, 30, 30), "green": (30, 190, 40), "blue": (40, 40, 210)}.items():
        for i in range(6):
            pixels = np.clip(np.array(colour) + draws.normal(0, 60, (60, 80, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{name}{i}.png")
            paths.append(str(folder / f"{name}{i}.png"))
            names.append(name)
    return paths, names


@pytest.fixture(scope="module")
def odd_files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Images of many sizes, turns and modes."""
    folder = tmp_path_factory.mktemp("odd")
    draws = np.random.default_rng(1)
    smooth = Image.fromarray(draws.integers(0, 256, (9, 12, 3), np.uint8))
    large = smooth.resize((650, 450), Image.Resampling.BICUBIC)
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        large.resize((300 + 37 * turn, 300)).save(folder / f"turned{turn}.jpg", exif=exif)
    large.save(folder / "large.jpg", quality=90)
    large.resize((31, 700)).save(folder / "tall.png")
    large.resize((5, 4)).save(folder / "tiny.png")
    large.convert("L").save(folder / "grey.jpg")
    large.convert("1").save(folder / "black and white.png")
    large.convert("CMYK").save(folder / "print.jpg")
    clear = large.convert("RGBA")
    clear.putalpha(Image.fromarray(draws.integers(0, 256, (450, 650), np.uint8)))
    clear.save(folder / "clear.png")
    clear.convert("LA").save(folder / "grey clear.png")
    large.convert("P", palette=Image.Palette.ADAPTIVE).save(folder / "palette.png")
    large.convert("P", palette=Image.Palette.ADAPTIVE).save(folder / "see-through.png", transparency=3)
    large.save(folder / "film.webp")
    return sorted(map(str, folder.iterdir()))


@pytest.fixture(scope="module", params=VIEWS)
def fitted(request: pytest.FixtureRequest, photos: tuple[list[str], list[str]]) -> lw.Classifier:
    return lw.fit(photos, "discriminant", encoder={"frozen": True}, view=VIEWS[request.param])


@pytest.fixture(scope="module")
def scores(fitted: lw.Classifier, odd_files: list[str]) -> Scores:
    return fitted.scores(odd_files)


@pytest.fixture(scope="module")
def folder(fitted: lw.Classifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = fitted.export(tmp_path_factory.mktemp("exported") / "my birds")
    assert {file.name for file in made.file.iterdir()} == {
        "model.onnx", "labels.json", "classify.py", "classify.js", "classify.html", "README.txt",
    }  # fmt: skip
    return made.file


def test_the_python_program_answers_without_labelwise(
    scores: Scores, folder: Path, odd_files: list[str], tmp_path: Path
) -> None:
    hidden = "import sys, runpy; sys.modules.update(dict.fromkeys(('labelwise', 'torch', 'onnx'))); sys.argv.pop(0); "
    program = hidden + "runpy.run_path(sys.argv[0], run_name='__main__')"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    deep = tmp_path / "deep.png"
    Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save(deep)
    words = [sys.executable, "-c", program, str(folder / "classify.py"), *odd_files, str(deep), "missing.jpg"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert done.returncode == 1
    assert "more than 8 bits" in done.stderr
    assert "missing.jpg' is skipped" in done.stderr
    assert "Traceback" not in done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    names = scores.classifier.labels.names
    assert [one["file"] for one in answers] == odd_files
    for row, one in enumerate(answers):
        given = [one["probabilities"][name] for name in names]
        np.testing.assert_allclose(given, scores.probabilities[row], atol=1e-5, err_msg=one["file"])
        assert one["unknown"] == scores.unknown[row]
        assert one["labels"] == ([] if scores.unknown[row] else [names[scores.best[row]]])


def test_the_python_program_keeps_a_promise_with_parents(
    photos: tuple[list[str], list[str]], odd_files: list[str], tmp_path: Path
) -> None:
    data = as_dataset(photos)
    parents = tuple(("plant",) if name == "green" else ("other", "thing") for name in data.labels.names)
    tree = lw.fit(replace(data, labels=replace(data.labels, parents=parents)), "discriminant")
    made = tree.export(tmp_path / "a tree")
    words = [sys.executable, str(made.file / "classify.py"), "--max-error", "0.3", *odd_files]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for line, one in zip(done.stdout.splitlines(), tree.classify(odd_files, max_error=0.3), strict=True):
        answer = json.loads(line)
        assert answer["answer"] == one.label
        assert answer["parents"] == list(one.parents or ())
        if one.label not in ("unknown", "unsure"):
            assert answer["probability"] == pytest.approx(one.probability, abs=1e-5)
    words[3] = "1.5"
    refused = subprocess.run(words, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "between 0 and 1" in refused.stderr


def test_steps_of_the_python_program_are_those_of_the_tree() -> None:
    program = runpy.run_path(str(Path(lw.__file__).parent / "core" / "standalone" / "classify.py"))
    parents = tuple((f"genus {i // 2}", f"family {i // 6}") for i in range(16))
    labels = Labels(
        names=(*(f"species {i}" for i in range(16)), "genus 0", "alone"), parents=(*parents, ("family 0",), ())
    )
    paths = [[*reversed(above), name] for above, name in zip(labels.parents or (), labels.names, strict=True)]
    tree = Tree.of(labels)
    probabilities = np.random.default_rng(0).dirichlet(np.full(18, 0.3), 200)
    others = np.random.default_rng(1).dirichlet(np.full(18, 0.3), 200)
    mistakes = np.sort(tree.mistakes(others, np.arange(200) % 18)).tolist()
    calibration = replace(Calibration.none(18, exclusive=False, penalty="offset"), mistakes=np.array(mistakes))
    for max_error in (0.001, 0.1, 0.5):
        least = program["limit"](mistakes, max_error)
        assert least == calibration.limit(max_error)
        own = [program["coarser"](row, paths, least) for row in probabilities]
        for (path, value), (names, expected) in zip(own, tree.answers(probabilities, least), strict=True):
            assert tuple(path) == names
            assert value == pytest.approx(expected)


@pytest.fixture(scope="module")
def address(folder: Path, odd_files: list[str]) -> Iterator[str]:
    """The exported folder on loopback, with onnxruntime-web and the images."""
    cached = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "labelwise" / "npm" / "onnxruntime-web"
    web = Path(os.environ.get(WEB, cached))
    if not (web / "dist" / "ort.wasm.min.mjs").exists():
        pytest.skip(f"onnxruntime-web is not in {web} (tools/onnx_web.sh)")
    (folder / "node_modules").mkdir(exist_ok=True)
    (folder / "node_modules" / "onnxruntime-web").symlink_to(web)
    (folder / "odd").symlink_to(Path(odd_files[0]).parent)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


ANSWERS = """async (files) => {
  const { load } = await import("/classify.js");
  const classify = await load();
  const answers = [];
  for (const file of files) answers.push(await classify(await (await fetch("/odd/" + file)).blob()));
  return answers;
}"""


def test_the_browser_answers_the_same(scores: Scores, address: str, odd_files: list[str], browser: Any) -> None:
    page = browser.new_page()
    page.goto(f"{address}/README.txt")
    answers = page.evaluate(ANSWERS, [Path(file).name for file in odd_files])
    names = scores.classifier.labels.names
    for row, (file, one) in enumerate(zip(odd_files, answers, strict=True)):
        given = dict(one["probabilities"])
        away = max(abs(given[name] - p) for name, p in zip(names, scores.probabilities[row], strict=True))
        kind = "jpeg" if file.endswith(("large.jpg", "grey.jpg", "print.jpg")) else "exact"
        assert away <= (BY_BROWSER if kind == "jpeg" else 1e-4), file
        if kind == "exact":
            assert one["unknown"] == scores.unknown[row], file
            assert one["labels"] == ([] if scores.unknown[row] else [names[scores.best[row]]])
    page.close()


def test_the_page_of_the_folder_answers(fitted: lw.Classifier, address: str, photos: Any, browser: Any) -> None:
    page, faults = browser.new_page(), list[str]()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(f"{address}/classify.html")
    page.wait_for_selector("#files:enabled")
    page.set_input_files("#files", [photos[0][0], photos[0][-1]])
    page.wait_for_selector("figure:nth-of-type(2) b")
    assert page.locator("figure b").all_inner_texts() == [photos[1][-1], photos[1][0]]
    assert faults == []
    page.close()


def test_what_cannot_be_a_folder_is_refused(fitted: lw.Classifier, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--overwrite"):
        fitted.export(folder)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "labels.json").write_text("{}")  # also the name of descriptions next to photos
    with pytest.raises(UsageError, match="not an exported folder"):
        fitted.export(tmp_path / "mine", overwrite=True)
    features = lw.fit((np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32), ["a", "b"] * 20))
    with pytest.raises(UnsupportedError, match=r"features\.onnx"):
        features.export(tmp_path / "features")
    assert not (tmp_path / "features").exists()
