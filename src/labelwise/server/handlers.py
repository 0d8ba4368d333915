"""What each route does: read the request, ask the engine, write the answer."""

import asyncio
import json
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from labelwise.server.answers import MOST_TEXT, About, AboutLabel, MaybeAbout, Nothing, Top
from labelwise.server.bodies import read_form, read_lesson, read_picture
from labelwise.server.engine import Engine
from labelwise.server.questions import Ask, Classify, Explain, Outliers, Teach, Verify
from labelwise.server.refusals import Refusal
from labelwise.server.shown import TYPES, small_picture

PAGE = Path(__file__).parent / "page"
PAGE_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


def reply(document: Any) -> Response:
    """Return a JSON answer; it is not validated anew, which would take longer than the question."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(text.encode(errors="replace"), media_type="application/json")


class Reading:
    """Routes that tell about the service."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def health(self, _: Request, __: Nothing) -> Response:
        """Return whether the service is up."""
        now = await self.engine.present()
        named = {"status": "ok", "model": self.engine.card["model"]}
        return reply({**named, "labels": len(now.classifier.labels), "change": now.change})

    async def card(self, _: Request, __: Nothing) -> Response:
        """Return what the model is and can."""
        now, shown = (await self.engine.present()).classifier, self.engine.examples
        labels, described = len(now.labels), len(now.described)
        pairs = zip(shown.names, shown.ids, strict=True)
        examples = [{"name": name, "picture": f"/examples/{one}"} for name, one in pairs]
        counts = {"labels": labels, "described": described, "seen": labels - described}
        return reply({**self.engine.card, **counts, "examples": examples})

    async def labels(self, _: Request, __: Nothing) -> Response:
        """Return all labels."""
        now = await self.engine.present()
        lessons = {one.label: one for one in now.story.state.taught}
        rows = []
        for name in now.classifier.labels.names:
            one = lessons.get(name)
            row: dict[str, Any] = {"name": name, "taught": one is not None, "from": one.source if one else "training"}
            rows.append(row | ({"examples": one.examples} if one and one.source == "examples" else {}))
        last = now.story.undoable[-1] if now.story.undoable else None
        undo = last and {"action": last.action, "label": last.label}
        return reply({"change": now.change, "labels": rows, "undo": undo})

    async def metrics(self, _: Request, __: Nothing) -> Response:
        """Return counts and times."""
        engine, now = self.engine, await self.engine.present()
        gauges = {
            "labelwise_queue_length": engine.batcher.length,
            "labelwise_labels": len(now.classifier.labels),
            "labelwise_changes": now.change,
        }
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(engine.measures.text(gauges), headers={"content-type": kind})

    async def gallery_picture(self, id: str) -> Response:
        """Return a picture of the gallery as a small JPEG."""
        if self.engine.gallery is None:
            raise Refusal(404, "There is no gallery: the service was started without --gallery.")
        file, pixels = self.engine.gallery.find(id), self.engine.service.pixels
        content = await asyncio.get_running_loop().run_in_executor(None, small_picture, file, pixels)
        return Response(content, media_type="image/jpeg")

    async def example_picture(self, id: str) -> Response:
        """Return a picture to try, as it is."""
        file = self.engine.examples.find(id)
        try:
            return Response(file.read_bytes(), media_type=TYPES[file.suffix.lower()])
        except OSError:
            raise Refusal(404, "The picture is not there any more.") from None


class Asking:
    """Routes that ask something of pictures."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.service = engine, engine.service

    async def classify(self, request: Request, options: Top) -> Response:
        """Return what a picture shows."""
        picture = await read_picture(request, self.service)
        return reply(await self.engine.ask(Classify(options.top), [picture]))

    async def ask(self, request: Request, options: About) -> Response:
        """Return yes or no."""
        if (options.label is None) == (options.text is None):
            raise Refusal(400, "Ask about a label (?label=NAME) or a sentence (?text=...), one of the two.")
        self.engine.check("ask" if options.text is None else "ask_text")
        picture = await read_picture(request, self.service)
        return reply(await self.engine.ask(Ask(options.label, options.text), [picture]))

    async def explain(self, request: Request, options: About) -> Response:
        """Return a heat map."""
        if options.label is not None and options.text is not None:
            raise Refusal(400, "Explain a label (?label=NAME) or a sentence (?text=...), not both.")
        self.engine.check("explain")
        if options.text is not None:
            self.engine.check("ask_text")
        picture = await read_picture(request, self.service)
        return reply(await self.engine.ask(Explain(options.label, options.text), [picture]))

    async def outliers(self, request: Request, _: Nothing) -> Response:
        """Return an outlier score."""
        self.engine.check("outliers")
        return reply(await self.engine.ask(Outliers(), [await read_picture(request, self.service)]))

    async def verify(self, request: Request, _: Nothing) -> Response:
        """Return whether two pictures show the same."""
        self.engine.check("verify")
        pictures = await read_form(request, self.service, {"a": 1, "b": 1})
        return reply(await self.engine.ask(Verify(), pictures))

    async def retrieve(self, request: Request, options: Top) -> Response:
        """Return the most similar pictures of the gallery."""
        self.engine.check("retrieve")
        picture = await read_picture(request, self.service)
        return reply({"matches": await self.engine.retrieve(picture, options.top)})


class Changes:
    """Routes that change the labels; answered when the change is on disk."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def teach(self, request: Request, options: MaybeAbout) -> Response:
        """Add a label."""
        if self.engine.service.read_only:
            self.engine.check("teach_examples")
        body, pictures = await read_lesson(request, self.engine.service)
        if options.label is not None and body.label is not None and options.label != body.label:
            raise Refusal(400, f'The label is given twice and differs: "{options.label}" and "{body.label}".')
        name = options.label or body.label
        if not name:
            raise Refusal(400, "Say which label is taught: ?label=NAME.")
        if not pictures and (body.texts is None) == (body.vector is None):
            raise Refusal(400, "A label is described by texts or by a vector, one of the two.")
        self.engine.check("teach_examples" if pictures else "teach_texts" if body.texts is not None else "teach_vector")
        texts = None if body.texts is None else tuple(body.texts)
        if texts is not None and sum(map(len, texts)) > 10 * MOST_TEXT:
            raise Refusal(400, f"The texts of a label have at most {10 * MOST_TEXT} characters in all.")
        question = Teach(name, texts, None if body.vector is None else tuple(body.vector))
        served = await self.engine.teach(question, pictures)
        return reply({"label": name, "labels": len(served.classifier.labels), "change": served.change})

    async def forget(self, _: Request, options: AboutLabel) -> Response:
        """Remove a label."""
        self.engine.check("forget")
        served = await self.engine.forget(options.label)
        return reply({"label": options.label, "labels": len(served.classifier.labels), "change": served.change})

    async def undo(self, _: Request, __: Nothing) -> Response:
        """Take back the last change."""
        self.engine.check("undo")
        undone, served = await self.engine.undo()
        return reply({"undone": undone, "labels": len(served.classifier.labels), "change": served.change})


class Page:
    """The page and its files; the list is made once, so that no path of a client is ever opened."""

    def __init__(self) -> None:
        found = sorted(PAGE.iterdir()) if PAGE.is_dir() else []
        self.files = {file.name: file for file in found if file.suffix in PAGE_TYPES}

    async def start(self) -> Response:
        """Return the page."""
        return self._file("index.html")

    async def file(self, name: str) -> Response:
        """Return one of its files."""
        return self._file("" if name == "index.html" else name)

    def _file(self, name: str) -> Response:
        if name not in self.files:
            raise Refusal(404, "There is no such file.")
        file = self.files[name]
        return Response(file.read_bytes(), media_type=PAGE_TYPES[file.suffix])
