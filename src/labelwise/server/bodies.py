"""Bodies: of requests, read within limits of size and time and told apart by content type; of answers, JSON."""

import asyncio
import json
import math
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from labelwise.server.answers import TeachBody
from labelwise.server.refusals import CLOSE, Refusal
from labelwise.server.settings import Service

TYPES = ("image/png", "image/jpeg", "image/webp", "image/bmp", "image/gif")
MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"BM", b"GIF8")
FORM, JSON = "multipart/form-data", "application/json"
MOST_PICTURES = 64
T = TypeVar("T")


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer, null for what is no number; it is not validated anew, which would take longer than the question."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(document), ensure_ascii=False, allow_nan=False)
    return Response(text.encode(errors="replace"), status, headers, JSON)


def _finite(document: Any) -> Any:
    """Return a document with None in place of infinite numbers and of those that are none."""
    if isinstance(document, dict):
        return {name: _finite(value) for name, value in document.items()}
    if isinstance(document, list | tuple):
        return [_finite(value) for value in document]
    return None if isinstance(document, float) and not math.isfinite(document) else document


def refused(refusal: Refusal) -> Response:
    """Return the answer that says no."""
    return reply({"error": refusal.text}, refusal.status, refusal.headers)


async def read_picture(request: Request, service: Service) -> bytes:
    """Return the one picture of a request: its raw body, or the form field ``image``."""
    kind = _content_type(request)
    if kind == FORM:
        return (await read_form(request, service, {"image": 1}))[0]
    if kind in TYPES:
        return _checked(await _arrived(request.body(), service))
    raise _unfit(kind, f"A picture is sent as {', '.join(TYPES)} or in a form ({FORM})")


async def read_lesson(request: Request, service: Service) -> tuple[TeachBody, Sequence[bytes]]:
    """Return what a request teaches: a description (JSON), or pictures (a form, or one raw body)."""
    kind = _content_type(request)
    if kind == JSON:
        return _description(await _arrived(request.body(), service)), ()
    if kind == FORM:
        return TeachBody(), await read_form(request, service, {"images": MOST_PICTURES})
    if kind in TYPES:
        return TeachBody(), [await read_picture(request, service)]
    raise _unfit(kind, f"A label is taught from pictures ({FORM}, field images) or from a description ({JSON})")


async def read_form(request: Request, service: Service, fields: dict[str, int]) -> list[bytes]:
    """Return the pictures of a form in the order of ``fields``, which says how many of each there may be at most."""
    if (kind := _content_type(request)) != FORM:
        raise _unfit(kind, f"Pictures are sent in a form ({FORM}) with: {', '.join(fields)}")
    try:
        parser = MultiPartParser(
            request.headers,
            request.stream(),
            max_files=sum(fields.values()),
            max_fields=4,
            max_part_size=service.body,
        )
        vars(parser).update(
            dict.fromkeys(("spool_max_size", "max_file_size"), service.body)
        )  # never on disk: it may be full
        form = await _arrived(parser.parse(), service)
    except (MultiPartException, FormParserError) as error:
        raise Refusal(400, f"The form cannot be read: {getattr(error, 'message', error)}") from None
    try:
        unknown = sorted(set(form) - set(fields))
        if unknown:
            raise Refusal(400, f'A form of this route has the fields {", ".join(fields)}; given "{unknown[0]}".')
        pictures: list[bytes] = []
        for name, most in fields.items():
            files = form.getlist(name)
            if not 1 <= len(files) <= most:
                wanted = "one picture" if most == 1 else f"1 to {most} pictures"
                raise Refusal(400, f'Send {wanted} in the field "{name}"; given {len(files)}.')
            for file in files:
                if not isinstance(file, UploadFile):
                    raise Refusal(400, f'The field "{name}" must hold a file; given a text.')
                pictures.append(_checked(await file.read()))
        return pictures
    finally:
        await form.close()


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unfit(kind: str, wanted: str) -> Refusal:
    return Refusal(415, f'{wanted}; given "{kind or "nothing"}".')


def _checked(content: bytes) -> bytes:
    """Return the content of a picture file, or refuse what is none of the formats; nothing is decoded yet."""
    if not content:
        raise Refusal(400, "The picture is empty (0 bytes). Send the content of a picture file.")
    webp = content[:4] != b"RIFF" or content[8:12] == b"WEBP"
    if not content.startswith(MAGIC) or not webp:
        raise Refusal(400, "The body is no PNG, JPEG, WebP, BMP or GIF picture. Send the content of a picture file.")
    return content


def _description(body: bytes) -> TeachBody:
    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is no number of JSON")

    try:
        return TeachBody.model_validate(json.loads(body, parse_constant=no_constant), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise Refusal(
            400, f'{{"label", "texts"}} or {{"label", "vector"}} is wanted; {where}: {first["msg"]}.'
        ) from None
    except (ValueError, RecursionError) as error:
        raise Refusal(400, f"The body is no JSON document ({error}).") from None


async def _arrived(reading: Awaitable[T], service: Service) -> T:
    """Return what was read, its length checked before; or refuse what does not arrive in time."""
    try:
        async with asyncio.timeout(service.timeout):
            return await reading
    except (TimeoutError, ClientDisconnect):
        raise Refusal(408, f"The body did not arrive within {service.timeout:g} s.", CLOSE) from None
