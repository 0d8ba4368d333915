"""What each route does: read the request, take the scores, ask the task of the same name, write the answer."""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from labelwise.classifier import NONE, UNKNOWN
from labelwise.errors import LabelwiseError
from labelwise.scores import Scores
from labelwise.server.abilities import DRAFT, with_text
from labelwise.server.answers import MOST_TEXT, About, AboutLabel, MaybeAbout, Nothing, Top
from labelwise.server.bodies import read_form, read_lesson, read_picture
from labelwise.server.engine import Engine
from labelwise.server.lessons import Source
from labelwise.server.present import Served
from labelwise.server.refusals import Refusal, position, refusal_of
from labelwise.tasks.ask import ask
from labelwise.tasks.classify import classify
from labelwise.tasks.explain import explain
from labelwise.tasks.outliers import outliers
from labelwise.tasks.retrieve import search
from labelwise.tasks.teach import teach
from labelwise.tasks.verify import verify

LONGEST_NAME = 200
T = TypeVar("T")


def reply(document: Any) -> Response:
    """Return a JSON answer; it is not validated anew, which would take longer than the question."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False)
    return Response(text.encode(errors="replace"), media_type="application/json")


def told(task: Callable[[], T]) -> T:
    """Return what a task gives; an error of the library is told to the client."""
    try:
        return task()
    except LabelwiseError as error:
        raise refusal_of(error) from None


class Reading:
    """Routes that tell about the service."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def health(self, _: Request, __: Nothing) -> Response:
        """Return whether the service is up."""
        now = await self.engine.served()
        named = {"status": "ok", "model": self.engine.card["model"]}
        return reply({**named, "labels": len(now.classifier.labels), "change": now.change})

    async def card(self, _: Request, __: Nothing) -> Response:
        """Return what the model is and can."""
        now, shown = (await self.engine.served()).classifier, self.engine.examples
        labels, unseen = len(now.labels), len(now.unseen)
        pairs = zip(shown.names, shown.ids, strict=True)
        examples = [{"name": name, "picture": f"/examples/{one}"} for name, one in pairs]
        counts = {"labels": labels, "described": unseen, "seen": labels - unseen}
        return reply({**self.engine.card, **counts, "examples": examples})

    async def labels(self, _: Request, __: Nothing) -> Response:
        """Return all labels."""
        now = await self.engine.served()
        lessons = {one.label: one for one in now.state.taught}
        rows = []
        for name in now.classifier.labels.names:
            one = lessons.get(name)
            row: dict[str, Any] = {"name": name, "taught": one is not None, "from": one.source if one else "training"}
            rows.append(row | ({"examples": one.examples} if one and one.source == "examples" else {}))
        last = now.state.undoable[-1] if now.state.undoable else None
        undo = last and {"action": last.action, "label": last.label}
        return reply({"change": now.change, "labels": rows, "undo": undo})

    async def metrics(self, _: Request, __: Nothing) -> Response:
        """Return counts and times."""
        now = await self.engine.served()
        gauges = {
            "labelwise_queue_length": self.engine.batches.length,
            "labelwise_labels": len(now.classifier.labels),
            "labelwise_changes": now.change,
        }
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(self.engine.measures.text(gauges), headers={"content-type": kind})


class Asking:
    """Routes that ask something of pictures."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def classify(self, request: Request, options: Top) -> Response:
        """Return what a picture shows."""
        scores, change = await self._scores(request)
        several, limit = scores.classifier.calibration.multilabel, scores.classifier.familiarity.rule
        (found,) = classify(scores, top=len(scores.classifier.labels) if several else options.top)
        document: dict[str, Any] = {
            "label": found.label,
            "known": found.known,
            "probability": found.probability,
            "top": [{"label": name, "probability": value} for name, value in found.top[: options.top]],
            "outlier": None if limit is None else _outlier(scores),
            "multilabel": several,
            "change": change,
        }
        if several:
            document["answers"] = [{"label": name, "yes": p >= 0.5, "probability": p} for name, p in found.top]
        return reply(document)

    async def ask(self, request: Request, options: About) -> Response:
        """Return yes or no."""
        if (options.label is None) == (options.text is None):
            raise Refusal(400, "Ask about a label (?label=NAME) or a sentence (?text=...), one of the two.")
        self.engine.check("ask" if options.text is None else "ask_text")
        scores, change = await self._scores(request)
        if options.label is not None:
            position(scores.classifier, options.label)
            (found,) = ask(scores, options.label)
        else:
            text = options.text or ""
            (found,) = await self.engine.aside(lambda: told(lambda: ask(with_text(scores, text), DRAFT)))
        about = {"text": options.text} if options.label is None else {"label": options.label}
        return reply({**about, "yes": found.yes, "probability": found.probability, "change": change})

    async def explain(self, request: Request, options: About) -> Response:
        """Return a heat map."""
        label, text = options.label, options.text
        if label is not None and text is not None:
            raise Refusal(400, "Explain a label (?label=NAME) or a sentence (?text=...), not both.")
        self.engine.check("explain")
        if text is not None:
            self.engine.check("ask_text")
        scores, change = await self._scores(request)
        if label is not None:
            position(scores.classifier, label)

        def task() -> dict[str, Any]:
            found = explain(scores, label) if text is None else explain(with_text(scores, text), DRAFT)
            return {
                **({"label": found.label} if text is None else {"text": text}),
                "probability": found.probability,
                "heat": [[round(value, 4) for value in line] for line in found.heat.tolist()],
                "height": found.heat.shape[0],
                "width": found.heat.shape[1],
                "change": change,
            }

        return reply(await self.engine.aside(lambda: told(task)))

    async def outliers(self, request: Request, _: Nothing) -> Response:
        """Return an outlier score."""
        self.engine.check("outliers")
        scores, _change = await self._scores(request)
        return reply(_outlier(scores))

    async def verify(self, request: Request, _: Nothing) -> Response:
        """Return whether two pictures show the same."""
        self.engine.check("verify")
        pictures = await read_form(request, self.engine.service, {"a": 1, "b": 1})
        scores, _change = await self.engine.scores(pictures)
        (found,) = await self.engine.aside(lambda: told(lambda: verify(scores[:1], scores[1:])))
        rule = scores.classifier.verifier
        assert rule is not None
        said = {"same": found.same, "similarity": found.score, "probability": found.probability}
        return reply({**said, "threshold": rule.threshold})

    async def retrieve(self, request: Request, options: Top) -> Response:
        """Return the most similar pictures of the gallery; it is this model's own, so nothing has to be compared first."""
        self.engine.check("retrieve")
        scores, _ = await self._scores(request)
        gallery = self.engine.gallery
        assert gallery is not None
        assert gallery.embeddings is not None
        model, others = scores.classifier.model, gallery.embeddings
        values, rows = await self.engine.aside(lambda: search(model, scores.embeddings, others, options.top))
        pairs = zip(rows[0].tolist(), values[0].tolist(), strict=True)
        matches = [
            {"file": gallery.names[row], "similarity": value, "picture": f"/gallery/{gallery.ids[row]}"}
            for row, value in pairs
        ]
        return reply({"matches": matches})

    async def _scores(self, request: Request) -> tuple[Scores, int]:
        return await self.engine.scores([await read_picture(request, self.engine.service)])


def _outlier(scores: Scores) -> dict[str, Any]:
    (found,) = outliers(scores)
    return {"score": found.score, "flagged": found.flagged, "threshold": scores.classifier.familiarity.limit}


class Changes:
    """Routes that change the labels; answered when the change is on disk."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def teach(self, request: Request, options: MaybeAbout) -> Response:
        """Add a label."""
        engine = self.engine
        if engine.service.read_only:
            engine.check("teach_examples")
        body, pictures = await read_lesson(request, engine.service)
        if options.label is not None and body.label is not None and options.label != body.label:
            raise Refusal(400, f'The label is given twice and differs: "{options.label}" and "{body.label}".')
        name = options.label or body.label
        if not name:
            raise Refusal(400, "Say which label is taught: ?label=NAME.")
        if not pictures and (body.texts is None) == (body.vector is None):
            raise Refusal(400, "A label is described by texts or by a vector, one of the two.")
        source: Source = "examples" if pictures else "vector" if body.texts is None else "texts"
        engine.check(f"teach_{source}")
        if sum(map(len, body.texts or ())) > 10 * MOST_TEXT:
            raise Refusal(400, f"The texts of a label have at most {10 * MOST_TEXT} characters in all.")
        check_name(name)
        examples = (await engine.scores(pictures))[0] if pictures else None
        served = await engine.write(
            lambda: engine.present.teach(
                name,
                source,
                lambda now: told(lambda: teach(now, name, examples=examples, texts=body.texts, vector=body.vector)),
            )
        )
        return _changed(served, label=name)

    async def forget(self, _: Request, options: AboutLabel) -> Response:
        """Remove a label."""
        self.engine.check("forget")
        served = await self.engine.write(lambda: self.engine.present.forget(options.label))
        return _changed(served, label=options.label)

    async def undo(self, _: Request, __: Nothing) -> Response:
        """Take back the last change."""
        self.engine.check("undo")
        last, served = await self.engine.write(self.engine.present.undo)
        return _changed(served, undone={"action": last.action, "label": last.label})


def _changed(served: Served, **about: Any) -> Response:
    return reply({**about, "labels": len(served.classifier.labels), "change": served.change})


def check_name(label: str) -> None:
    """Refuse what cannot be the name of a label."""
    if not label.strip() or label.strip() in (UNKNOWN, NONE):
        raise Refusal(400, f'"{label}" cannot be the name of a label.')
    if len(label) > LONGEST_NAME or not label.isprintable():
        raise Refusal(400, f"A label has at most {LONGEST_NAME} characters, all of them printable.")
