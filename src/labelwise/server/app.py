"""The application: the table of routes, their dispatch, and the OpenAPI document."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any
from urllib.parse import parse_qsl

from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from labelwise import __version__
from labelwise.server import answers
from labelwise.server.answers import About, AboutLabel, AboutTaught, AboutWhy, Nothing, Promises, TopEight, Words
from labelwise.server.bodies import FORM, JSON, MOST_IMAGES, TYPES, refuse
from labelwise.server.engine import Engine
from labelwise.server.errors import STATUSES, HTTPError
from labelwise.server.metrics import Metrics
from labelwise.server.middleware import Guard, answered
from labelwise.server.pages import FOLDER, page
from labelwise.server.routes import Routes
from labelwise.server.settings import Service

DESCRIPTION = "Ask questions to an image classifier and teach it labels while it runs."
ALWAYS = (400, 401, 403, 404, 405, 429, 500, 503)
BODY = (408, 411, 413, 415, 422)
Handler = Callable[[Request, Any], Awaitable[Response]]


def _form(**fields: Any) -> dict[str, Any]:
    names = list(fields)
    return {"schema": {"type": "object", "properties": fields, "required": names, "additionalProperties": False}}


_FILE: dict[str, Any] = {"type": "string", "format": "binary"}
_FILES = {"type": "array", "items": _FILE, "minItems": 1, "maxItems": MOST_IMAGES}
_RAW = {kind: {"schema": _FILE} for kind in TYPES}
IMAGE, PAIR = {**_RAW, FORM: _form(image=_FILE)}, {FORM: _form(a=_FILE, b=_FILE)}
CORRECTION = {**_RAW, FORM: _form(images=_FILES)}
EXAMPLES = {**_RAW, FORM: _form(images=_FILES), JSON: {"schema": answers.TeachBody.model_json_schema()}}


@dataclass(frozen=True)
class Route:
    """A route: its path, inputs and answer."""

    path: str
    handler: Handler
    summary: str
    method: str = "GET"
    options: type[BaseModel] = Nothing
    answer: type[BaseModel] | None = None
    errors: tuple[int, ...] = ()
    body: dict[str, Any] | None = None


def build(service: Service, metrics: Metrics | None = None) -> Guard:
    """Return the application of a service, with its classifier and changes loaded."""
    metrics = metrics or Metrics()
    does = Routes(Engine(service, metrics))
    routes = table(does)
    return Guard(
        direct(documented(does, routes), routes), service, metrics, frozenset(route.path for route in routes) | {"/"}
    )


def table(does: Routes) -> list[Route]:
    """Return the routes with a fixed path."""
    ask = partial(Route, method="POST", errors=BODY, body=IMAGE)
    change = partial(Route, method="POST", errors=(*BODY, 409), answer=answers.Changed)
    return [
        Route("/health", does.health, "Whether the service is up", answer=answers.Health),
        Route("/ready", does.ready, "Whether it answers questions and accepts changes", answer=answers.Ready),
        Route("/card", does.card, "The model card", answer=answers.Card),
        Route("/labels", does.labels, "All labels, taught ones last", answer=answers.LabelList),
        Route("/metrics", does.metrics, "Counts and times for Prometheus"),
        ask("/classify", does.classify, "What is it?", answer=answers.Classification, options=Promises),
        ask("/ask", does.ask, "Does the image show a label, or what a sentence says?", answer=answers.Asked, options=About),
        ask("/explain", does.explain, "A heat map of the evidence for a label", answer=answers.Explanation, options=AboutWhy),
        ask("/outliers", does.outliers, "Does the image have none of the labels?", answer=answers.Outlier),
        ask("/verify", does.verify, "Do two images show the same label?", answer=answers.Verification, body=PAIR),
        Route("/search", does.search, "Which images of the gallery does a sentence fit best?", answer=answers.Matches, options=Words, errors=(422,)),
        ask("/retrieve", does.retrieve, "Which images of the gallery are most like it?", answer=answers.Matches, options=TopEight),
        change("/teach", does.teach, "Add a label from images, sentences or a vector", options=AboutTaught, body=EXAMPLES),
        change("/correct", does.correct, "Teach a known label more images of it", options=AboutLabel, body=CORRECTION),
        change("/forget", does.forget, "Remove a label", options=AboutLabel),
        change("/undo", does.undo, "Undo the last change", answer=answers.Undone),
    ]  # fmt: skip


def direct(app: ASGIApp, routes: list[Route]) -> ASGIApp:
    """Return an application that dispatches table routes by one look-up and passes the rest on."""
    known = {(route.method, route.path): route for route in routes}

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        route = known.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await app(scope, receive, send)
            return
        options = options_of(route, scope["query_string"])
        response = await route.handler(Request(scope, receive), options)
        await response(scope, receive, send)

    return answer


def options_of(route: Route, query: bytes) -> BaseModel:
    """Parse the options of a request; refuse unknown options and wrong values."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:
        raise HTTPError(400, "The options are not valid UTF-8. Percent-encode them.") from None
    values = dict(pairs)
    if len(values) < len(pairs):
        raise HTTPError(400, "An option is given more than once.")
    try:
        return route.options.model_validate(values)
    except ValidationError as error:
        first, known = error.errors()[0], ", ".join(route.options.model_fields) or "none"
        where = ".".join(map(str, first["loc"]))
        raise HTTPError(400, f"{where}: {first['msg']}. Options: {known}.") from None


def documented(does: Routes, routes: list[Route]) -> FastAPI:
    """Return the application that documents all routes, and serves the page and routes with a variable path."""

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        does.engine.start()
        yield
        await does.engine.stop()

    app = FastAPI(
        title="labelwise", version=__version__, description=DESCRIPTION, docs_url=None, redoc_url=None, lifespan=life
    )
    app.add_exception_handler(HTTPError, refuse)
    app.add_exception_handler(HTTPException, refuse)
    app.mount("/static", StaticFiles(directory=FOLDER / "static"))
    app.add_api_route("/", lambda: page("index.html"), include_in_schema=False)
    for path, handler, summary in (
        ("/gallery/{id}", does.gallery_image, "A gallery image, small"),
        ("/examples/{id}", does.example_image, "An example image"),
    ):
        responses = {**_declared_errors(), 200: {"content": {"image/*": {}}, "description": "The image."}}
        app.add_api_route(path, answered(handler), responses=responses, response_class=Response, summary=summary)
    for route in routes:
        _describe(app, route)
    return app


def _describe(app: FastAPI, route: Route) -> None:
    """Document a route of the table, which is dispatched elsewhere."""

    async def endpoint(request: Request, options: Any) -> Response:
        return await route.handler(request, options)

    endpoint.__annotations__["options"] = Annotated[route.options, Query()]
    responses = _declared_errors(*route.errors)
    if route.answer is None:
        responses[200] = {"content": {"text/plain": {}}, "description": "Counts and times."}
    app.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        response_model=route.answer,
        response_class=Response if route.answer is None else JSONResponse,
        responses=responses,
        summary=route.summary,
        operation_id=route.path.strip("/"),
        openapi_extra={"requestBody": {"required": True, "content": route.body}} if route.body else None,
    )


def _declared_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the documented errors of a route."""
    every = sorted({*ALWAYS, *statuses})
    return {status: {"model": answers.Error, "description": STATUSES[status]} for status in every}
