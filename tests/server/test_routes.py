"""Every route answers as the function of the same name does, for every method."""

import json
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import labelwise as lw
from labelwise.core.arrays import Array
from labelwise.core.store import save
from labelwise.encoders.onnx import OnnxEncoder
from labelwise.methods import METHODS
from labelwise.support.errors import UsageError
from labelwise.tasks.gallery_files import add_files, gallery_of_files
from labelwise.tasks.gallery_store import create_gallery
from tests.conftest import blobs
from tests.encoders.hub_reader import HUB, read_in_python
from tests.pixels_of import px
from tests.server.asking import PNG, form, images_of, png, saved, serving
from tests.server.conftest import model_of

NEAR = 1e-5


def samples(text: str) -> dict[tuple[str, ...], float]:
    """The figures in a text for Prometheus, by name and values of labels."""
    from prometheus_client.parser import text_string_to_metric_families

    metrics = text_string_to_metric_families(text)
    return {
        (one.name, *(one.labels[key] for key in sorted(one.labels))): one.value for m in metrics for one in m.samples
    }


@pytest.mark.parametrize("name", METHODS)
def test_answers_are_those_of_the_tasks(name: str, tmp_path: Path) -> None:
    classifier, images = model_of(name), images_of(1, 3)
    image, label = png(images[0]), classifier.labels.names[1]
    with serving(saved(tmp_path, name)) as client:
        can = client.get("/card").json()["can"]
        found = client.post("/classify?top=3", content=image, headers=PNG).json()
        (wanted,) = lw.classify(classifier, images[:1], top=3)
        assert (found["label"], found["known"]) == (wanted.label, wanted.known)
        assert [one["label"] for one in found["top"]] == [x for x, _ in wanted.top]
        assert found["probability"] == pytest.approx(wanted.probability, abs=NEAR)
        assert found["outlier"]["score"] == pytest.approx(wanted.outlier, abs=1e-3)
        asked = client.post("/ask", params={"label": label}, content=image, headers=PNG).json()
        assert asked["probability"] == pytest.approx(lw.ask(classifier, images[:1], label)[0].probability, abs=NEAR)
        strange = client.post("/outliers", files=form(images[:1], "image")).json()
        assert strange["score"] == pytest.approx(lw.outliers(classifier, images[:1])[0].score, abs=1e-3)
        why = client.post("/explain", params={"label": label}, content=image, headers=PNG)
        if can["explain"] is None:
            heat = torch.tensor(why.json()["heat"])
            assert heat.shape == (8, 8)
            assert torch.allclose(heat, torch.from_numpy(lw.explain(classifier, images[0], label).heat), atol=1e-3)
            other = classifier.labels.names[0]
            two = client.post("/explain", params={"label": label, "against": other}, content=image, headers=PNG).json()
            both = lw.explain(classifier, images[0], label, against=other)
            assert two["against"] == other
            for key in ("heat", "heat_against"):
                assert torch.allclose(torch.tensor(two[key]), torch.from_numpy(getattr(both, key)), atol=1e-3)
        else:
            assert why.status_code == 422
        pair = client.post("/verify", files=form(images[:1], "a") + form(images[1:2], "b"))
        if can["verify"] is None:
            (same,) = lw.verify(classifier, images[:1], images[1:2])
            assert pair.json()["similarity"] == pytest.approx(same.score, abs=1e-4)
            assert pair.json()["same"] == same.same
        else:
            assert pair.status_code == 422
            assert pair.json() == {"error": can["verify"]}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_taught_and_forgets(name: str, tmp_path: Path) -> None:
    classifier, images = model_of(name), images_of(5)
    with serving(saved(tmp_path, name)) as client:
        assert client.get("/card").json()["can"]["teach_examples"] is None
        done = client.post("/teach?label=new%20one", files=form(images))
        said = done.json()
        assert said.pop("check").startswith("It looks most like ")
        assert said == {"label": "new one", "labels": len(classifier.labels) + 1, "change": 1}
        wanted = lw.teach(classifier, "new one", examples=images)
        found = client.post("/classify?top=100", content=png(images[0]), headers=PNG).json()
        (own,) = lw.classify(wanted, images[:1], top=100)
        assert found["probability"] == pytest.approx(own.probability, abs=NEAR)
        assert {x["label"] for x in found["top"]} == set(wanted.labels.names)
        listed = client.get("/labels").json()
        assert listed["labels"][-1] == {"name": "new one", "taught": True, "from": "examples", "examples": 5}
        assert listed["undo"] == {"action": "teach", "label": "new one"}
        first = classifier.labels.names[0]
        assert client.post("/forget", params={"label": first}).json()["change"] == 2
        assert client.get("/labels").json()["labels"][0]["name"] == classifier.labels.names[1]
        assert client.post("/undo").json()["undone"] == {"action": "forget", "label": first}
        assert [x["name"] for x in client.get("/labels").json()["labels"]] == [*classifier.labels.names, "new one"]
        assert client.post("/undo").json()["labels"] == len(classifier.labels)
        assert client.post("/undo").status_code == 409


@pytest.mark.parametrize("name", [name for name, kind in METHODS.items() if kind.zero_shot])
def test_descriptions_teach_methods_that_read_them(name: str, tmp_path: Path) -> None:
    classifier = model_of(name)
    with serving(saved(tmp_path, name)) as client:
        card = client.get("/card").json()
        texts = {"label": "new", "texts": ["a yellow square", "this one is yellow"]}
        vector = {"label": "new", "vector": [1.0, 1.0, 0.0]}
        kind, body = ("texts", texts) if card["can"]["teach_texts"] is None else ("vector", vector)
        other = vector if kind == "texts" else texts
        assert client.post("/teach", json=other).status_code == 422
        assert client.post("/teach", json=body).json()["labels"] == len(classifier.labels) + 1
        if kind == "vector":
            assert card["vector"] == {"size": 3}
            wanted = lw.teach(classifier, "new", vector=[1.0, 1.0, 0.0])
            assert client.post("/teach", json={"label": "z", "vector": [1.0]}).status_code == 400
        else:
            wanted = lw.teach(classifier, "new", texts=texts["texts"])
            image = images_of(3, 1)
            asked = client.post("/ask", params={"text": texts["texts"][0]}, content=png(image[0]), headers=PNG).json()
            drafted = lw.teach(classifier, "x", texts=texts["texts"][0])
            assert asked["probability"] == pytest.approx(lw.ask(drafted, image, "x")[0].probability, abs=NEAR)
            why = client.post("/explain", params={"text": "a red square"}, content=png(image[0]), headers=PNG).json()
            assert why["text"] == "a red square"
        found = client.post("/ask?label=new", content=png(images_of(3, 1)[0]), headers=PNG).json()
        assert found["probability"] == pytest.approx(lw.ask(wanted, images_of(3, 1), "new")[0].probability, abs=NEAR)
        assert client.get("/labels").json()["labels"][-1] == {"name": "new", "taught": True, "from": kind}


ALONE = ("/classify", "/ask?label=blob%201", "/explain", "/outliers", "/retrieve")
SENTENCES = ("/ask?text=a%20red%20square", "/explain?text=a%20red%20square")


@pytest.mark.parametrize(("name", "more"), [("softmax", ("/verify",)), ("clarel", SENTENCES)])
def test_each_image_is_encoded_once(
    name: str, more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, real = list[int](), OnnxEncoder.__call__

    def counted(encoder: OnnxEncoder, images: Array) -> Any:
        passes.append(len(images))
        return real(encoder, images)

    (tmp_path / "gallery").mkdir()
    (tmp_path / "gallery" / "one.png").write_bytes(png(images_of(2)[0]))
    with serving(saved(tmp_path, name), gallery=tmp_path / "gallery") as client:
        monkeypatch.setattr(OnnxEncoder, "__call__", counted)
        for path in (*ALONE, *more):
            fields = ("a", "b") if path == "/verify" else ("image",)
            files = [one for i, field in enumerate(fields) for one in form(images_of(i, 1), field)]
            assert client.post(path, files=files).status_code == 200
            assert sum(passes) == len(fields), path
            passes.clear()
        assert client.post("/teach?label=x", files=form(images_of(3, 5))).status_code == 200
        assert sum(passes) == 5
        client.post("/teach", json={"label": "y", "texts": ["a yellow square"]})
        client.post("/forget?label=x")
        client.post("/undo")
        assert sum(passes) == 5, "nothing is encoded where no image is sent"


def test_several_labels_are_each_answered(tmp_path: Path) -> None:
    with serving(saved(tmp_path, "several")) as client:
        found = client.post("/classify?top=1", content=png(images_of(0)[0]), headers=PNG).json()
    assert found["multilabel"]
    assert sorted(one["label"] for one in found["answers"]) == ["blue", "green", "red"]
    assert len(found["top"]) == 1


def test_retrieve_finds_the_images_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "gallery" / "deep"
    folder.mkdir(parents=True)
    for label in range(4):
        for i, image in enumerate(images_of(label, 3)):
            (folder / f"{label} {i}.png").write_bytes(png(image))
    (folder / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    with serving(saved(tmp_path), gallery=folder.parent) as client:
        found = client.post("/retrieve?top=4", content=png(images_of(2)[1]), headers=PNG).json()["matches"]
        assert len(found) == 4
        assert found[0]["file"] == "deep/2 1.png"
        assert found[0]["similarity"] == pytest.approx(1, abs=1e-4)
        image = client.get(found[0]["image"])
        assert (image.status_code, image.headers["content-type"]) == (200, "image/jpeg")
        assert client.get("/gallery/..%2F..%2Fetc%2Fpasswd").status_code == 404
        assert client.get("/gallery/none").status_code == 404
    with serving(saved(tmp_path)) as client:
        why = client.post("/retrieve", content=png(images_of(2)[1]), headers=PNG)
        assert why.status_code == 422
        assert "--gallery" in why.json()["error"]


def test_a_gallery_is_searched_for_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in_python(monkeypatch)
    folder, pixels = tmp_path / "photos", np.random.default_rng(0).integers(0, 256, (4, 3, 16, 16), np.uint8)
    folder.mkdir()
    for place, each in enumerate(pixels):
        Image.fromarray(each.transpose(1, 2, 0)).save(folder / f"{place}.png")
    classifier = lw.fit(pixels, names=["red", "green"], encoder=str(HUB / "clip"))
    classifier.save(tmp_path / "words.lw")
    with serving(tmp_path / "words.lw", gallery=folder) as client:
        rows = client.get("/search", params={"text": "blue at night", "top": 2}).json()["matches"]
        assert client.get("/search").status_code == 400
    wanted = classifier.retrieve_by_text("blue at night", pixels, k=2)
    assert [each["file"] for each in rows] == [f"{each.file.split()[1]}.png" for each in wanted]
    assert [each["similarity"] for each in rows] == pytest.approx([each.score for each in wanted])
    with serving(tmp_path / "words.lw") as client:
        assert client.get("/search", params={"text": "blue"}).status_code == 422


@pytest.mark.parametrize("kept", ["photos.lance", "photos.safetensors"])
def test_retrieve_finds_the_images_of_a_gallery_that_was_kept(
    kept: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is encoded at the start, names say no path, and only images of the gallery are shown."""
    folder, index = tmp_path / "some photos" / "deep", tmp_path / kept
    folder.mkdir(parents=True)
    for label in range(4):
        for i, image in enumerate(images_of(label, 3)):
            (folder / f"{label} {i}.png").write_bytes(png(image))
    classifier, files = model_of("indicator"), sorted(str(file) for file in folder.iterdir())
    if kept.endswith(".lance"):
        pytest.importorskip("lancedb")
        add_files(create_gallery(index, classifier), classifier, files)
    else:
        gallery_of_files(classifier, files)[0].save(index)
    (folder / "outside.png").write_bytes(png(images_of(1)[0]))
    monkeypatch.setattr("labelwise.server.gallery.gallery_of_files", None)
    with serving(saved(tmp_path, "indicator"), gallery=index) as client:
        found = client.post("/retrieve?top=4", content=png(images_of(2)[1]), headers=PNG).json()["matches"]
        assert found[0]["file"] == "deep/2 1.png"
        assert found[0]["similarity"] == pytest.approx(1, abs=1e-4)
        assert str(tmp_path) not in json.dumps(found)
        assert client.get(found[0]["image"]).headers["content-type"] == "image/jpeg"
        digest = blake2b(str(folder / "outside.png").encode(), digest_size=12).hexdigest()
        checksum = found[0]["image"].rpartition("/")[2][:8] if kept.endswith(".lance") else ""
        for other in ("none", digest, checksum + digest, "0" * 32, "..%2F..%2Fetc%2Fpasswd"):
            assert client.get(f"/gallery/{other}").status_code == 404
    with (
        pytest.raises(UsageError, match="another model"),
        serving(saved(tmp_path / "other", "prototype"), gallery=index),
    ):
        pass


def test_examples_are_offered(tmp_path: Path) -> None:
    (tmp_path / "try").mkdir()
    (tmp_path / "try" / "a bird.png").write_bytes(png(images_of(0)[0]))
    with serving(saved(tmp_path), examples=tmp_path / "try") as client:
        (one,) = client.get("/card").json()["examples"]
        assert one["name"] == "a bird"
        assert client.get(one["image"]).content == png(images_of(0)[0])


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/classify?top=0", 400, "top"),
        ("/classify?topp=3", 400, "topp"),
        ("/classify?top=3&top=4", 400, "more than once"),
        ("/ask", 400, "label"),
        ("/ask?label=a&text=b", 400, "Ask about either"),
        ("/ask?label=owl", 404, "Known labels"),
        ("/ask?text=an%20owl", 422, "from images"),
        ("/explain?label=owl", 404, "owl"),
        ("/explain?label=blob%201&against=owl", 404, "owl"),
        ("/explain?label=blob%201&against=blob%201", 400, "twice"),
        ("/nothing", 404, "no route"),
        ("/teach", 400, "?label"),
        ("/teach?label=Unknown", 400, "is reserved for answers"),
        ("/teach?label=%20", 400, "is empty"),
        ("/teach?label=%E3%85%A4", 400, "is empty"),
        ("/teach?label=a%00b", 400, "control character"),
        ("/teach?label=%FF%FE", 400, "UTF-8"),
        ("/teach?label=%ED%A0%80", 400, "UTF-8"),
        (f"/teach?label={'a' * 201}", 400, "longer than 200"),
        ("/teach?label=blob%201", 409, "already"),
    ],
)
def test_wrong_requests_say_why(path: str, status: int, says: str, tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        found = client.post(path, content=png(images_of(0)[0]), headers=PNG)
        assert found.status_code == status
        assert says in found.json()["error"]
        assert list(found.json()) == ["error"]
        assert client.get("/health").json()["change"] == 0


def test_of_those_who_teach_the_same_label_at_once_one_succeeds(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client, ThreadPoolExecutor(8) as pool:

        def change(i: int) -> tuple[int, int]:
            path = "/forget?label=new" if i % 4 == 3 else "/teach?label=new"
            answer = client.post(path, files=form(images_of(i % 4)) if "teach" in path else None)
            return answer.status_code, answer.json().get("change", 0)

        answers = list(pool.map(change, range(80)))
        changes = sorted(change for status, change in answers if status == 200)
        assert changes == list(range(1, client.get("/health").json()["change"] + 1)), (
            "each committed change was a success"
        )
        assert {status for status, _ in answers} <= {200, 404, 409}
        assert len(changes) > 2


def test_a_label_is_found_in_any_spelling(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        done = client.post("/teach", params={"label": " Cafe\u0301 "}, files=form(images_of(5)))
        assert done.json()["label"] == "Caf\u00e9"
        assert client.post("/teach", params={"label": "Caf\u00e9"}, files=form(images_of(5))).status_code == 409
        asked = client.post("/ask", params={"label": "Cafe\u0301"}, content=png(images_of(5)[0]), headers=PNG)
        assert asked.json()["label"] == "Caf\u00e9"
        shouted = {"label": "CAFE\u0301"}
        again = client.post("/teach", params=shouted, files=form(images_of(5)))
        assert (again.status_code, 'label "Caf\u00e9" already exists' in again.json()["error"]) == (409, True)
        asked = client.post("/ask", params=shouted, content=png(images_of(5)[0]), headers=PNG)
        assert asked.json()["label"] == "Caf\u00e9"
        assert client.post("/correct", params=shouted, files=form(images_of(5))).json()["label"] == "Caf\u00e9"
        assert client.post("/forget", params=shouted).json()["label"] == "Caf\u00e9"


def test_the_last_label_stays(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        for i in range(3):
            assert client.post("/forget", params={"label": f"blob {i}"}).status_code == 200
        assert client.post("/forget", params={"label": "blob 3"}).status_code == 409
        assert client.post("/forget", params={"label": "blob 0"}).status_code == 404
        assert client.post("/teach?label=blob%200", files=form(images_of(0))).status_code == 200
        assert client.post("/forget", params={"label": "blob 3"}).status_code == 200
        assert [x["name"] for x in client.get("/labels").json()["labels"]] == ["blob 0"]


def test_a_model_of_features_is_refused(tmp_path: Path) -> None:
    from dataclasses import replace

    data = blobs()
    flat = {name: replace(s, images=px(s).flatten(1).float()) for name, s in data.splits.items()}
    save(lw.fit(replace(data, splits=flat), lw.methods.Softmax(epochs=1)), tmp_path / "f.lw")
    with pytest.raises(UsageError, match="precomputed features"), serving(tmp_path / "f.lw"):
        pass


def test_the_document_describes_all(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        document = client.get("/openapi.json").json()
        assert client.get("/docs").status_code == 404
    routes = {
        "/health",
        "/ready",
        "/card",
        "/labels",
        "/metrics",
        "/classify",
        "/ask",
        "/explain",
        "/outliers",
        "/verify",
    }
    routes |= {"/retrieve", "/search", "/teach", "/correct", "/forget", "/undo", "/gallery/{id}", "/examples/{id}"}
    assert set(document["paths"]) == routes
    for path in document["paths"].values():
        for route in path.values():
            assert route["summary"]
            assert {"200", "400", "401", "403", "404", "405", "429", "500", "503"} <= set(route["responses"])
    post = document["paths"]["/classify"]["post"]
    assert set(post["requestBody"]["content"]) >= {"image/png", "image/jpeg", "multipart/form-data"}
    assert [one["name"] for one in post["parameters"]] == ["top", "max_error", "coverage", "prior"]


def test_a_promise_is_kept_by_parents_which_a_taught_label_can_give(tmp_path: Path) -> None:
    with serving(saved(tmp_path, "tree")) as client:
        image = png(images_of(1)[0])
        plain = client.post("/classify", content=image, headers=PNG).json()
        assert plain["label"].startswith("blob")
        assert "parents" not in plain
        answer = client.post("/classify?max_error=0.1", content=image, headers=PNG).json()
        assert (answer["label"], answer["parents"]) in (("warm", []), ("cold", []), ("unsure", []))
        assert answer["top"] == plain["top"]
        assert client.post("/classify?max_error=1.5", content=image, headers=PNG).status_code == 400
        taught = client.post("/teach?label=new&parent=warm", files=form(images_of(5)))
        assert taught.status_code == 200
        assert client.post("/teach?label=other&parent=unsure", files=form(images_of(4))).status_code == 400
        rows = {row["name"]: row.get("parents") for row in client.get("/labels").json()["labels"]}
        assert rows["new"] == ["warm"]
        assert rows["blob 0"] == ["cold"]
    with serving(saved(tmp_path, "tree")) as client:  # what was taught outlives the service
        rows = {row["name"]: row.get("parents") for row in client.get("/labels").json()["labels"]}
        assert rows["new"] == ["warm"]


def test_a_list_of_labels_that_may_occur_changes_one_answer(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        image = png(images_of(1)[0])

        def ask(**query: str) -> Any:
            return client.post("/classify", params={"top": "10", **query}, content=image, headers=PNG)

        everything, here = ask().json(), ask(prior="BLOB 0\nblob 2\nokapi\n").json()
        assert everything["label"] == "blob 1"
        assert {one["label"] for one in here["top"]} == {"blob 0", "blob 2"}
        assert here["prior"] == {"labels": 2, "others": ["okapi"]}
        weights = {"blob 0": 1.0, "blob 2": 9.0}
        weighed = ask(prior="Label, share\nblob 0, 1\nblob 2, 9\nblob 3, 0").json()
        restricted = lw.load(saved(tmp_path)).restrict(weights)
        (wanted,) = restricted.classify(images_of(1)[:1].numpy())
        got = {one["label"]: one["probability"] for one in weighed["top"]}
        assert got == pytest.approx(dict(wanted.top), abs=1e-4)
        assert got["blob 2"] > {one["label"]: one["probability"] for one in here["top"]}["blob 2"]
        assert ask().json() == everything
        for wrong in ("okapi", "label,share\nblob 0,many", "label,share\nblob 0", "label,share\n", "  ", "x" * 16_001):
            refused = ask(prior=wrong)
            assert refused.status_code == 400, wrong
            assert refused.json()["error"]


def test_metrics_count(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        for _ in range(3):
            client.post("/classify", content=png(images_of(0)[0]), headers=PNG)
        client.post("/teach?label=x", files=form(images_of(5)))
        client.get("/no/such/route")
        found = samples(client.get("/metrics").text)
    assert found["labelwise_requests_total", "/classify", "200"] == 3
    assert found["labelwise_requests_total", "other", "404"] == 1
    assert found["labelwise_request_seconds_bucket", "+Inf", "/classify"] == 3
    assert found["labelwise_request_seconds_count", "/classify"] == 3
    assert found["labelwise_batch_images_sum",] == 8
    assert found["labelwise_batch_images_bucket", "1.0"] == 3
    assert found["labelwise_labels",] == 5
    assert found["labelwise_changes",] == 1
    assert found["labelwise_queue_length",] == 0
    assert not [name for name, *_ in found if name.endswith("_created")]


def test_counts_of_workers_are_summed_and_never_fall() -> None:
    from labelwise.server.metrics import CELLS, Metrics

    memory = bytearray(2 * 8 * CELLS)
    one, other = Metrics(memory, 0), Metrics(memory, 1)
    for metrics in (one, other):
        metrics.expect(["/b", "/a"])
    one.request("/a", 200, 0.002)
    other.request("/a", 200, 0.2)
    other.request("/b", 404, 0.2)
    other.batch(3)
    told = samples(one.text({"labelwise_labels": 4}).decode())
    assert told["labelwise_requests_total", "/a", "200"] == 2
    assert told["labelwise_request_seconds_bucket", "0.0025", "/a"] == 1
    assert told["labelwise_request_seconds_bucket", "+Inf", "/a"] == 2
    assert told["labelwise_request_seconds_sum", "/a"] == pytest.approx(0.202)
    assert told["labelwise_batch_images_bucket", "4.0"] == 1
    assert told["labelwise_batch_images_bucket", "2.0"] == 0
    assert told["labelwise_labels",] == 4
    again = Metrics(memory, 1)  # it dies, and another takes its place
    again.expect(["/a", "/b"])
    assert samples(again.text({"labelwise_labels": 4}).decode()) == told
    again.request("/a", 200, 0.002)
    assert samples(one.text({}).decode())["labelwise_requests_total", "/a", "200"] == 3


def test_a_known_label_learns_from_more_images(tmp_path: Path) -> None:
    with serving(saved(tmp_path, "growing")) as client:
        assert client.get("/card").json()["can"]["correct"] is None
        image = png(images_of(5)[0])
        before = client.post("/ask?label=blob%201", content=image, headers=PNG).json()["probability"]
        others = client.post("/ask?label=blob%202", content=image, headers=PNG).json()["probability"]
        answer = client.post("/correct?label=blob%201", content=image, headers=PNG)
        assert (answer.status_code, answer.json()) == (200, {"label": "blob 1", "labels": 4, "change": 1})
        assert client.post("/ask?label=blob%201", content=image, headers=PNG).json()["probability"] != before
        assert client.post("/ask?label=blob%202", content=image, headers=PNG).json()["probability"] == others
        many = form(images_of(5, 1).repeat(50, 1, 1, 1))
        assert client.post("/correct?label=blob%201", files=many).json()["change"] == 2
        assert client.post("/ask?label=blob%201", content=image, headers=PNG).json()["probability"] > 10 * before
        labels = client.get("/labels").json()
        assert [row.get("more") for row in labels["labels"]] == [None, 51, None, None]
        assert labels["undo"] == {"action": "correct", "label": "blob 1"}
        assert client.post("/undo").json()["undone"] == {"action": "correct", "label": "blob 1"}
        client.post("/undo")
        assert client.post("/ask?label=blob%201", content=image, headers=PNG).json()["probability"] == before
        assert client.post("/correct?label=okapi", content=image, headers=PNG).status_code == 404
        text = client.post("/correct?label=blob%201", json={"texts": ["a blob"]})
        assert (text.status_code, "consists of images" in text.json()["error"]) == (400, True)
    with serving(saved(tmp_path, "growing"), read_only=True) as client:
        assert client.post("/correct?label=blob%201", content=image, headers=PNG).status_code == 403


def test_a_trained_label_whose_examples_are_not_kept_cannot_learn_and_a_taught_one_can(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        refused = client.post("/correct?label=blob%201", content=png(images_of(5)[0]), headers=PNG)
        assert refused.status_code == 422
        assert "fit again" in refused.json()["error"]
        client.post("/teach?label=new", files=form(images_of(5, 2)))
        assert client.post("/correct?label=new", content=png(images_of(5)[0]), headers=PNG).status_code == 200
