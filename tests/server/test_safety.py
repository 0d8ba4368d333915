"""What a service refuses, and how cheaply: sizes, bombs, tokens, strangers, floods."""

import io
import logging
import resource
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from labelwise.server.middleware import Buckets, rate_limit_key
from tests.server.asking import PNG, form, images_of, png, saved, serving

IMAGE = png(images_of(0)[0])


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bomb(kind: str, side: int) -> bytes:
    """A small file that says it is ``side`` pixels wide and high."""
    if kind == "png":
        head = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
        return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(5_000_000), 1)) + chunk(b"IEND", b"")
    if kind == "gif":
        return b"GIF89a" + struct.pack("<HHBBB", side, side, 0x80, 0, 0) + bytes(6) + (
            b"," + struct.pack("<HHHHB", 0, 0, side, side, 0) + b"\x02\x02\x44\x01\x00;"
        )  # fmt: skip
    if kind == "bmp":
        size = struct.pack("<IiiHHIIiiII", 40, side, side, 1, 24, 0, 0, 0, 0, 0, 0)
        return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + size
    stream = io.BytesIO()
    Image.new("RGB", (16, 16)).save(stream, kind.upper())
    data = bytearray(stream.getvalue())
    if kind == "jpeg":
        place = data.index(b"\xff\xc0") + 5
        data[place : place + 4] = struct.pack(">HH", side, side)
    else:
        place = data.index(b"\x9d\x01\x2a") + 3  # the key frame of lossy WebP
        data[place : place + 4] = struct.pack("<HH", side, side)
    return bytes(data)


@pytest.mark.parametrize(
    ("kind", "side"),
    [("png", 50_000), ("png", 12_000), ("gif", 60_000), ("bmp", 50_000), ("jpeg", 60_000), ("webp", 16_000)],
)
def test_a_bomb_costs_nothing(kind: str, side: int, tmp_path: Path) -> None:
    body = bomb(kind, side)
    with serving(saved(tmp_path)) as client:
        client.post("/classify", content=IMAGE, headers=PNG)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(3):
            found = client.post("/classify", content=body, headers={"content-type": f"image/{kind}"})
            assert found.status_code == 413
            assert "too many pixels" in found.json()["error"]
        assert client.post("/classify", content=IMAGE, headers=PNG).status_code == 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kilobytes"


def test_a_large_body_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with serving(saved(tmp_path), max_body=10_000) as client:
        found = client.post("/classify", content=IMAGE + bytes(10_000), headers=PNG)
        assert found.status_code == 413
        assert "the limit is 10000" in found.json()["error"]
        assert found.headers["connection"] == "close"
        lying = client.post("/classify", content=IMAGE, headers={**PNG, "content-length": "-5"})
        assert lying.status_code == 400
        assert client.post("/classify", content=iter([IMAGE]), headers=PNG).status_code == 411
        assert client.post("/classify", content=IMAGE, headers=PNG).status_code == 200


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "image/png", 400),
        (b"hello", "image/png", 400),
        (IMAGE[:40], "image/png", 400),
        (b"RIFF0000WAVE", "image/webp", 400),
        (IMAGE, "image/tiff", 415),
        (IMAGE, "text/plain", 415),
        (IMAGE, "", 415),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "image/svg+xml", 415),
        (b"{}", "application/json", 415),
        (b"x", "multipart/form-data", 400),
        (b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b", 400),
        (IMAGE, "image/jpeg", 200),
    ],
)
def test_bodies_that_are_no_images(body: bytes, kind: str, status: int, tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        assert client.post("/classify", content=body, headers={"content-type": kind}).status_code == status


def test_forms_are_strict(tmp_path: Path) -> None:
    images = images_of(0)
    with serving(saved(tmp_path)) as client:
        assert client.post("/classify", files=form(images[:1], "image")).status_code == 200
        for files in (
            form(images[:1], "photo"),
            form(images[:2], "image"),
            form(images[:1], "image") + form(images[:1], "x"),
        ):
            assert client.post("/classify", files=files).status_code == 400
        assert client.post("/classify", data={"image": "text"}, files={"x": b""}).status_code == 400
        many = form(images[:1]) * 65
        assert client.post("/teach?label=x", files=many).status_code == 400
        assert client.post("/verify", content=IMAGE, headers=PNG).status_code in (415, 422)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"texts": []}', b'{"texts": [1]}', b'{"vector": [NaN]}', b'{"vector": ["1"]}', b'{"other": 1}', b"\xff",
     b'{"texts": ["a"], "vector": [1]}', b"[" * 100_000, b'{"label": "\\ud800", "texts": ["a"]}'],
)  # fmt: skip
def test_lessons_in_json_are_strict(body: bytes, tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        found = client.post("/teach?label=x", content=body, headers={"content-type": "application/json"})
        assert found.status_code == 400
        assert client.get("/health").json()["change"] == 0


def test_the_token_guards_all_but_the_page(tmp_path: Path) -> None:
    with serving(saved(tmp_path), token="sesame") as client:
        assert client.get("/health").status_code == 200
        assert client.get("/").status_code == 200
        assert client.get("/static/page.js").status_code == 200
        for path in ("/card", "/labels", "/metrics", "/openapi.json", "/gallery/x", "/examples/x", "/nothing"):
            found = client.get(path)
            assert found.status_code == 401
            assert found.headers["www-authenticate"] == "Bearer"
        for given in (
            "sesame",
            "Bearer sesam",
            "Bearer sesame2",
            "Basic sesame",
            "Bearer ",
            "bearer\tsesame",
            "Bearer ñ",
        ):
            assert client.get("/card", headers={b"authorization": given.encode("latin-1")}).status_code == 401
        right = {"authorization": "Bearer sesame"}
        assert client.get("/card", headers=right).status_code == 200
        assert client.post("/forget?label=blob%200").status_code == 401
        assert client.post("/forget?label=blob%200", headers=right).status_code == 200


def test_read_only_refuses_changes(tmp_path: Path) -> None:
    with serving(saved(tmp_path), read_only=True) as client:
        for path, files in (("/teach?label=x", form(images_of(0))), ("/forget?label=blob%200", None), ("/undo", None)):
            found = client.post(path, files=files)
            assert found.status_code == 403
            assert "read-only" in found.json()["error"]
        card = client.get("/card").json()
        assert card["read_only"]
        assert all(card["can"][name] for name in ("teach_examples", "teach_texts", "teach_vector", "forget", "undo"))
        assert client.post("/classify", content=IMAGE, headers=PNG).status_code == 200
    assert not (tmp_path / "softmax.lw.taught").exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8000"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "evil.example:8000"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": ""}, 403),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
    ],
)
def test_other_web_pages_cannot_drive_it(headers: dict[str, str], status: int, tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        assert client.post("/forget?label=blob%200", headers=headers).status_code == status
        assert (
            "access-control-allow-origin"
            not in client.get("/labels", headers={"origin": "http://evil.example"}).headers
        )
        refused = client.options(
            "/forget", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
        )
        assert "access-control-allow-origin" not in refused.headers


def test_chosen_pages_and_names_may(tmp_path: Path) -> None:
    origin = "https://shop.example"
    settings: dict[str, Any] = {"allow_origins": (origin,), "allow_hosts": ("birds.example",), "token": "t"}
    with serving(saved(tmp_path), **settings) as client:
        asked = client.options("/forget", headers={"origin": origin, "access-control-request-method": "POST"})
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == origin
        sent = {"origin": origin, "sec-fetch-site": "cross-site", "host": "birds.example", "authorization": "Bearer t"}
        assert client.post("/forget?label=blob%200", headers=sent).headers["access-control-allow-origin"] == origin
        assert client.get("/health", headers={"host": "other.example"}).status_code == 403
        assert client.post("/forget?label=blob%201", headers={"origin": "https://shop.example.evil"}).status_code == 403


def test_every_answer_carries_the_headers(tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        for path in ("/", "/health", "/nothing", "/static/page.js"):
            headers = client.get(path).headers
            assert "unsafe-inline" not in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["referrer-policy"] == "no-referrer"
            assert "server" not in headers


@pytest.mark.parametrize("path", ["/static/..%2Fapp.py", "/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd",
                                  "/static/index.html", "/gallery/%00", "/examples/..%2f..%2f", "//etc/passwd"])  # fmt: skip
def test_paths_of_clients_are_never_opened(path: str, tmp_path: Path) -> None:
    with serving(saved(tmp_path)) as client:
        assert client.get(path).status_code == 404


def test_a_flood_is_slowed(tmp_path: Path) -> None:
    with serving(saved(tmp_path), rate=2.0) as client:
        found = [client.get("/health").status_code for _ in range(8)]
        assert found[:4] == [200] * 4
        late = client.get("/health")
        assert late.status_code == 429
        assert int(late.headers["retry-after"]) >= 1
    assert rate_limit_key("2001:db8::1") == rate_limit_key("2001:db8::ffff:1%eth0") != rate_limit_key("2001:db8:0:1::1")
    assert rate_limit_key("::ffff:1.2.3.4") == "::ffff:1.2.3.4"
    assert rate_limit_key("1.2.3.4") == "1.2.3.4"
    buckets = Buckets(2.0)
    assert [buckets.take("a", 0.0) for _ in range(5)] == [0, 0, 0, 0, 0.5]
    assert buckets.take("b", 0.0) == 0
    assert buckets.take("a", 0.5) == 0
    assert buckets.take("a", 0.5) == pytest.approx(0.5)


def test_a_fault_is_logged_with_an_id_and_told_without_a_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the inner secret")

    monkeypatch.setattr("labelwise.server.routes.classify", broken)
    logging.getLogger("labelwise.server").propagate = True
    with serving(saved(tmp_path)) as client:
        found = client.post("/classify", content=IMAGE, headers=PNG)
        assert client.post("/ask?label=blob%200", content=IMAGE, headers=PNG).status_code == 200
    assert found.status_code == 500
    assert "secret" not in found.text
    number = found.json()["error"].split()[3]
    assert number in caplog.text
    assert "the inner secret" in caplog.text


def test_settings_are_checked() -> None:
    from labelwise.server.settings import Service
    from labelwise.support.errors import UsageError

    for wrong in ({"workers": 0}, {"port": 70_000}, {"rate": -1.0}, {"token": " "}, {"token": "ä"}, {"timeout": 0.0}):
        with pytest.raises(UsageError):
            Service(model=Path("m"), **wrong)
    assert Service(model=Path("m"), host="::1").loopback
    assert Service(model=Path("m"), host="0.0.0.0").names is None
