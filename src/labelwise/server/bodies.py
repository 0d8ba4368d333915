"""Bodies of requests, by content type, and of answers, as JSON."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from python_multipart.exceptions import FormParserError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request
from starlette.responses import Response

from labelwise.server.answers import TeachBody
from labelwise.server.errors import HTTPError
from labelwise.server.settings import Service
from labelwise.support.text import json_text

TYPES = ("image/png", "image/jpeg", "image/webp", "image/bmp", "image/gif")
MAGIC = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"BM", b"GIF8")
FORM, JSON = "multipart/form-data", "application/json"
MOST_IMAGES = 64


def reply(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer with null for NaN and infinity; skips validation, which would take longer than the request."""
    return Response(json_text(document).encode(errors="replace"), status, headers, JSON)


def error_response(error: HTTPError) -> Response:
    """Return the answer for an error."""
    return reply({"error": error.text}, error.status, error.headers)


async def refuse(request: Request, error: Exception) -> Response:
    """Return the answer to what an application behind the guard refuses."""
    if isinstance(error, HTTPError):
        return error_response(error)
    assert isinstance(error, HTTPException)
    path = request.url.path
    words = {404: f"There is no route {path}.", 405: f"{path} does not take {request.method}."}
    return reply({"error": words.get(error.status_code, error.detail)}, error.status_code, error.headers)


async def read_image(request: Request, service: Service) -> bytes:
    """Return the image of a request: its raw body, or the form field ``image``."""
    kind = _content_type(request)
    if kind == FORM:
        return (await read_form(request, service, {"image": 1}))[0]
    if kind in TYPES:
        return _checked(await request.body())
    raise _unfit(kind, f"Send an image as {', '.join(TYPES)} or in a form ({FORM})")


async def read_examples(request: Request, service: Service) -> tuple[TeachBody, Sequence[bytes]]:
    """Return the content of a teach request: a description (JSON), or images (a form, or one raw body)."""
    kind = _content_type(request)
    if kind == JSON:
        return _description(await request.body()), ()
    if kind == FORM:
        return TeachBody(), await read_form(request, service, {"images": MOST_IMAGES})
    if kind in TYPES:
        return TeachBody(), [await read_image(request, service)]
    raise _unfit(kind, f"Teach a label from images ({FORM}, field images) or from a description ({JSON})")


async def read_form(request: Request, service: Service, fields: dict[str, int]) -> list[bytes]:
    """Return the images of a form in the order of ``fields``, which maps each field to its most images."""
    if (kind := _content_type(request)) != FORM:
        raise _unfit(kind, f"Send images in a form ({FORM}) with: {', '.join(fields)}")
    try:
        parser = MultiPartParser(
            request.headers,
            request.stream(),
            max_files=sum(fields.values()),
            max_fields=4,
            max_part_size=service.max_body,
        )
        parser.spool_max_size = service.max_body  # never use the disk, which may be full
        form = await parser.parse()
    except (MultiPartException, FormParserError) as error:
        raise HTTPError(400, f"The form cannot be read: {getattr(error, 'message', error)}") from None
    try:
        unknown = sorted(set(form) - set(fields))
        if unknown:
            raise HTTPError(400, f'The form takes the fields {", ".join(fields)}; given "{unknown[0]}".')
        images: list[bytes] = []
        for name, most in fields.items():
            files = form.getlist(name)
            if not 1 <= len(files) <= most:
                wanted = "one image" if most == 1 else f"1 to {most} images"
                raise HTTPError(400, f'Send {wanted} in the field "{name}"; given {len(files)}.')
            for file in files:
                if not isinstance(file, UploadFile):
                    raise HTTPError(400, f'The field "{name}" must be a file; given text.')
                images.append(_checked(await file.read()))
        return images
    finally:
        await form.close()


def _content_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _unfit(kind: str, wanted: str) -> HTTPError:
    return HTTPError(415, f'{wanted}; given "{kind or "nothing"}".')


def _checked(content: bytes) -> bytes:
    """Check the format of an image file without decoding it, and return its bytes."""
    if not content:
        raise HTTPError(400, "The image is empty (0 bytes). Send the content of an image file.")
    webp = content[:4] != b"RIFF" or content[8:12] == b"WEBP"
    if not content.startswith(MAGIC) or not webp:
        raise HTTPError(400, "The body is not a PNG, JPEG, WebP, BMP or GIF image. Send the content of an image file.")
    return content


def _description(body: bytes) -> TeachBody:
    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not a JSON number")

    try:
        return TeachBody.model_validate(json.loads(body, parse_constant=no_constant), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the document"
        raise HTTPError(400, f'Send {{"label", "texts"}} or {{"label", "vector"}}; {where}: {first["msg"]}.') from None
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"The body is not valid JSON ({error}).") from None
