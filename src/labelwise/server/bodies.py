"""Bodies of requests: read within limits of size and time, and told apart by content type."""

import asyncio
import json
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException
from starlette.requests import ClientDisconnect, Request

from labelwise.server.answers import TeachBody
from labelwise.server.refusals import Refusal
from labelwise.server.settings import Service

TYPES = ("image/png", "image/jpeg", "image/webp", "image/bmp", "image/gif")
MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"BM", b"GIF8")
MOST_PICTURES = 64
T = TypeVar("T")


def content_type(request: Request) -> str:
    """Return the content type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_picture(request: Request, service: Service) -> bytes:
    """Return the one picture of a request: its raw body, or the form field ``image``."""
    if content_type(request) == "multipart/form-data":
        (picture,) = await read_form(request, service, {"image": 1})
        return picture
    return await read_raw(request, service)


async def read_raw(request: Request, service: Service) -> bytes:
    """Return the raw body, a picture."""
    kind = content_type(request)
    if kind not in TYPES:
        raise Refusal(
            415,
            f'A picture is sent as {", ".join(TYPES)} or in a form (multipart/form-data); given "{kind or "nothing"}".',
        )
    return checked(await read_body(request, service))


async def read_body(request: Request, service: Service) -> bytes:
    """Return the whole body; its length was checked before the request came here."""
    return await _arrived(request.body(), service)


async def read_form(request: Request, service: Service, fields: dict[str, int]) -> list[bytes]:
    """Return the pictures of a form in the order of ``fields``, which says how many of each there may be at most."""
    if content_type(request) != "multipart/form-data":
        given = content_type(request) or "nothing"
        raise Refusal(
            415, f'Pictures are sent in a form (multipart/form-data) with: {", ".join(fields)}; given "{given}".'
        )
    reading = request.form(max_files=sum(fields.values()), max_fields=4, max_part_size=service.body)
    try:
        form = await _arrived(reading, service)
    except (MultiPartException, FormParserError) as error:
        raise Refusal(400, f"The form cannot be read: {getattr(error, 'message', error)}") from None
    try:
        unknown = sorted(set(form) - set(fields))
        if unknown:
            raise Refusal(400, f'A form of this route has the fields {", ".join(fields)}; given "{unknown[0]}".')
        found: list[bytes] = []
        for name, most in fields.items():
            files = form.getlist(name)
            if not 1 <= len(files) <= most:
                wanted = "one picture" if most == 1 else f"1 to {most} pictures"
                raise Refusal(400, f'Send {wanted} in the field "{name}"; given {len(files)}.')
            for file in files:
                if not isinstance(file, UploadFile):
                    raise Refusal(400, f'The field "{name}" must hold a file; given a text.')
                found.append(checked(await file.read()))
        return found
    finally:
        await form.close()


async def read_lesson(request: Request, service: Service) -> tuple[TeachBody, Sequence[bytes]]:
    """Return what a request teaches: a description (JSON), or pictures (a form, or one raw body)."""
    kind = content_type(request)
    if kind == "application/json":
        return _described(await read_body(request, service)), ()
    if kind == "multipart/form-data":
        return TeachBody(), await read_form(request, service, {"images": MOST_PICTURES})
    if kind in TYPES:
        return TeachBody(), [await read_raw(request, service)]
    raise Refusal(
        415,
        "A label is taught from pictures (multipart/form-data, field images) or from a description (application/json); "
        f'given "{kind or "nothing"}".',
    )


def checked(content: bytes) -> bytes:
    """Return the content of a picture file, or refuse what is none of the formats; nothing is decoded yet."""
    if not content:
        raise Refusal(400, "The picture is empty (0 bytes). Send the content of a picture file.")
    webp = content[:4] != b"RIFF" or content[8:12] == b"WEBP"
    if not content.startswith(MAGIC) or not webp:
        raise Refusal(400, "The body is no PNG, JPEG, WebP, BMP or GIF picture. Send the content of a picture file.")
    return content


def _described(body: bytes) -> TeachBody:
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
    """Return what was read, or refuse what does not arrive in time."""
    try:
        async with asyncio.timeout(service.timeout):
            return await reading
    except (TimeoutError, ClientDisconnect):
        text = f"The body did not arrive within {service.timeout:g} s."
        raise Refusal(408, text, {"Connection": "close"}) from None
