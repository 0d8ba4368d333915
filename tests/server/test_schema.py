"""The service keeps the promises of its own document: every answer is declared, no request makes it fail."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import SkipTest

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable

from tests.server.asking import PNG, images_of, png, saved
from tests.server.conftest import start

schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")

IMAGE = png(images_of(0)[0])
COMMON: dict[str, Any] = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("schema")
    site = start(saved(folder), gallery=gallery(folder))
    yield schemathesis.openapi.from_url(f"{site.url}/openapi.json")
    site.stop()


def gallery(folder: Path) -> Path:
    (folder / "gallery").mkdir()
    (folder / "gallery" / "one.png").write_bytes(IMAGE)
    return folder / "gallery"


def operations(schema: Any, method: str = "") -> list[Any]:
    found = [result.ok() for result in schema.get_all_operations()]
    return [one for one in found if not method or one.method.upper() == method]


def test_answers_are_declared_and_nothing_fails(schema: Any) -> None:
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    every = operations(schema)
    assert len(every) == 18
    for operation in every:

        @given(case=operation.as_strategy())
        @settings(max_examples=settings().max_examples // 3, phases=(Phase.explicit, Phase.generate), **COMMON)
        def check(case: Any) -> None:
            # No document can say which labels are known, or that one of two options is wanted.
            case.call_and_validate(excluded_checks=[positive_data_acceptance])

        check()


def test_wrong_requests_are_refused_as_declared(schema: Any) -> None:
    for operation in operations(schema):

        @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
        @settings(max_examples=settings().max_examples // 3, phases=(Phase.explicit, Phase.generate), **COMMON)
        def check(case: Any) -> None:
            case.call_and_validate()

        with contextlib.suppress(Unsatisfiable, SkipTest):  # there is no wrong request
            check()


def test_answers_about_a_real_image_are_declared(schema: Any) -> None:
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks as openapi

    checks = [not_a_server_error, openapi.status_code_conformance, openapi.content_type_conformance]
    checks.append(openapi.response_schema_conformance)
    for operation in operations(schema, "POST"):

        @given(case=operation.as_strategy())
        @settings(max_examples=6, phases=(Phase.generate,), **COMMON)
        def check(case: Any) -> None:
            case.body, case.media_type = IMAGE, "image/png"
            case.headers = {**(case.headers or {}), **PNG}
            case.validate_response(case.call(), checks=checks)

        check()
