"""The web page of a project: a few routes, behind the same middleware as a service."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from labelwise.label.actions import Action
from labelwise.label.ledger import UNKNOWN
from labelwise.label.questions import Question
from labelwise.server.bodies import refuse, reply
from labelwise.server.errors import HTTPError
from labelwise.server.gallery import small_image
from labelwise.server.labelling.export import FORMS, export
from labelwise.server.labelling.project import Project
from labelwise.server.metrics import Metrics
from labelwise.server.middleware import Guard, answered
from labelwise.server.pages import FOLDER, page
from labelwise.server.settings import Service
from labelwise.support.errors import UsageError

MOST_ACTIONS, MOST_ROWS = 100, 240  # actions per request; images per list
MOST_GROUPS, OF_GROUP = 12, 48  # groups of images without a label, and images of one
LONGEST = 10  # digits of an image's row
SIDES = (160, 480)  # pixels of an image on a sheet, and alone
Answer = Callable[[dict[str, Any]], Any]


def build(project: Project, service: Service, folder: Path) -> Guard:
    """Return the application of a project."""
    does = Routes(project, folder, service.pixels)
    routes = [
        Route("/", lambda _: page("label.html")),
        Route("/health", lambda _: reply({"status": "up"})),
        Route("/state", does.get(does.state)),
        Route("/images", does.get(does.images)),
        Route("/question", does.post(does.question), methods=["POST"]),
        Route("/actions", does.post(does.actions), methods=["POST"]),
        Route("/undo", does.post(does.undo), methods=["POST"]),
        Route("/export", does.post(does.export), methods=["POST"]),
        Route("/gallery/{row}", answered(does.image)),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse})
    known = frozenset(route.path for route in routes if isinstance(route, Route) and "{" not in route.path)
    return Guard(app, service, Metrics(), known)


class Routes:
    """The handlers of the routes."""

    def __init__(self, project: Project, folder: Path, pixels: int) -> None:
        self.project, self.folder, self.pixels = project, folder, pixels
        self._thread = ThreadPoolExecutor(1, "label")  # for all work on the session

    def get(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return a GET handler that answers with JSON and takes its options from the URL."""

        async def handle(request: Request) -> Response:
            return reply(await self._run(answer, dict(request.query_params)))

        return answered(handle, own=True)

    def post(self, answer: Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler for a JSON body."""

        async def handle(request: Request) -> Response:
            return reply(await self._run(answer, _document(await request.body())))

        return answered(handle, own=True)

    def state(self, _: dict[str, Any]) -> dict[str, Any]:
        """Return the labels with their counts, and the progress."""
        session = self.project.session
        with self.project.reading():
            targets, progress = session.ledger.targets, session.progress()
            guesses = Counter(one.label for one in session.labels() if one.source == "guess")
            answers = Counter(targets.tolist())
            labels = [
                {"name": name, "answered": answers[place], "guessed": guesses[name]}
                for place, name in enumerate(session.names)
            ]
            return {
                "labels": labels, "unknown": answers[UNKNOWN], "actions": len(session.actions), "exports": list(FORMS),
                "progress": {**asdict(progress), "words": progress.words},
            }  # fmt: skip

    def images(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the images of a label, the least probable guesses first, or groups of images of none of the labels ("unknown")."""
        session, kind = self.project.session, options.get("of", "label")
        with self.project.reading():
            if kind == "unknown":
                groups = session.unknown_groups()
                listed = [{"rows": rows[:OF_GROUP], "words": self.project.words(rows)} for rows in groups[:MOST_GROUPS]]
                return {"groups": listed, "count": sum(map(len, groups))}
            place = session.ledger.find(str(options.get("label", "")))
            name = session.names[place]
            guesses = [
                (one.probability, row, one.source) for row, one in enumerate(session.labels()) if one.label == name
            ]
        guesses.sort()
        shown = [{"row": row, "source": source, "probability": round(value, 3)} for value, row, source in guesses]
        return {"images": shown[:MOST_ROWS], "count": len(shown)}

    def question(self, document: dict[str, Any]) -> dict[str, Any]:
        """Return the next question for a browser."""
        sheets, check = bool(document.get("sheets", True)), bool(document.get("check", False))
        question = self.project.question(_text(document, "browser"), sheets=sheets, check=check)
        return {"question": self._shown(question), "state": self.state({})}

    def actions(self, document: dict[str, Any]) -> dict[str, Any]:
        """Apply actions, and return the next question."""
        actions = document.get("actions")
        if not isinstance(actions, list) or not 1 <= len(actions) <= MOST_ACTIONS:
            raise HTTPError(400, f"actions must be a list of 1 to {MOST_ACTIONS} actions.")
        if not all(isinstance(one, dict) for one in actions):
            raise HTTPError(400, "An action must be a JSON object.")
        person, _ = _text(document, "person"), _text(document, "browser")  # nothing is refused once actions are on disk
        with self.project.reading():
            self.project.add([Action.read({**one, "person": person}) for one in actions])
            return self.question(document)

    def undo(self, document: dict[str, Any]) -> dict[str, Any]:
        """Undo the last action of a person."""
        person, _ = _text(document, "person"), _text(document, "browser")
        with self.project.reading():
            undone = self.project.undo(person)
            return {"undone": undone.document() if undone else None, **self.question(document)}

    def export(self, document: dict[str, Any]) -> dict[str, Any]:
        """Write the labels into the project folder."""
        form = _text(document, "format")
        precision, least = document.get("precision", 0.95), document.get("min_probability")
        if not _share(precision) or precision == 0:
            raise HTTPError(400, "precision must be above 0 and at most 1.")
        if least is not None and not _share(least):
            raise HTTPError(400, "min_probability must be between 0 and 1.")
        with self.project.reading():
            labels = self.project.session.labels(float(precision), min_probability=least)
        written = export(self.project.files, labels, self.folder / "export", form)
        return {"written": str(written), "images": sum(bool(one.label) for one in labels)}

    async def image(self, request: Request) -> Response:
        """Return an image, small or large."""
        word = request.path_params["row"]
        row = int(word) if word.isascii() and word.isdecimal() and len(word) < LONGEST else len(self.project.files)
        if row >= len(self.project.files):
            raise HTTPError(404, "This image does not exist.")
        side = SIDES["large" in request.query_params]
        content = await asyncio.to_thread(small_image, Path(self.project.files[row]), self.pixels, None, side)
        return Response(content, media_type="image/jpeg", headers={"Cache-Control": "private, max-age=3600"})

    def _shown(self, question: Question | None) -> dict[str, Any] | None:
        if question is None:
            return None
        names = [Path(self.project.files[row]).name for row in question.rows]
        return {**asdict(question), "words": question.words, "files": names}

    async def _run(self, answer: Answer, document: dict[str, Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, answer, document)


def _document(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:
        raise HTTPError(400, f"The body is not valid JSON ({error}).") from None
    if not isinstance(document, dict):
        raise HTTPError(400, "The body must be a JSON object.")
    return document


def _share(value: Any) -> bool:
    """Return whether this is a number from 0 to 1."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _text(document: dict[str, Any], name: str) -> str:
    value = document.get(name, "")
    if not isinstance(value, str) or len(value) > 200:
        raise UsageError(f"{name} is a text of at most 200 characters.")
    return value
