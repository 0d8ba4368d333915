"""The handlers of all routes: read the request, compute scores, call the task of the same name, write the answer."""

import asyncio
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import Response

from labelwise.core.calibration import HALF
from labelwise.core.classifier import Classifier
from labelwise.core.scores import Scores
from labelwise.images.describe.labels import label_name
from labelwise.server.answers import MOST_TEXT, About, AboutLabel, AboutTaught, AboutWhy, Nothing, Promises, Top, Words
from labelwise.server.bodies import read_examples, read_form, read_image, reply
from labelwise.server.capabilities import with_text
from labelwise.server.changes import Source
from labelwise.server.engine import Engine
from labelwise.server.errors import HTTPError, known_label
from labelwise.server.gallery import MISSING, Sentence
from labelwise.server.live import Committed, Seen
from labelwise.tasks.ask import DRAFT, ask
from labelwise.tasks.classify import classify
from labelwise.tasks.explain import explain
from labelwise.tasks.occurring import parse_occurring, restrict
from labelwise.tasks.outliers import outliers
from labelwise.tasks.teach import rehearse, teach
from labelwise.tasks.verify import verify


class Routes:
    """The handlers, which use the engine of the service."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def health(self, _: Request, __: Nothing) -> Response:
        """Return that the process is alive; a missing store delays the answer by at most a second."""
        now = await self.engine.snapshot()
        counts = {"labels": len(now.classifier.labels), "change": now.change}
        return self._told({"status": "ok", "model": self.engine.card["model"], **counts}, now.seen)

    async def ready(self, _: Request, __: Nothing) -> Response:
        """Return that the service answers questions, and whether it accepts changes."""
        now = await self.engine.snapshot()
        changes = "refused" if self.engine.service.read_only else "away" if now.away else "taken"
        document = {"status": "ready", "changes": changes, "away": round(now.away, 1), "change": now.change}
        return self._told(document, now.seen)

    async def card(self, _: Request, __: Nothing) -> Response:
        """Return the model card: what the model is and can do."""
        served = await self.engine.snapshot()
        now = served.classifier
        labels, unseen = len(now.labels), len(now.unseen)
        counts = {"labels": labels, "described": unseen, "seen": labels - unseen}
        examples = [{"name": one.name, "image": f"/examples/{id}"} for id, one in self.engine.examples.items()]
        return self._told({**self.engine.card, **counts, "examples": examples}, served.seen)

    async def labels(self, _: Request, __: Nothing) -> Response:
        """Return all labels."""
        now = await self.engine.snapshot()
        rows: dict[str, dict[str, Any]] = {
            name: {"name": name, "taught": False, "from": "training"} for name in now.classifier.labels.names
        }
        for name, above in zip(rows, now.classifier.labels.parents or (), strict=False):
            rows[name] |= {"parents": list(above)} if above else {}
        for one in now.state.added:
            row, examples = rows[one.label], one.about["examples"]
            if one.kind == "correct":
                row["more"] = row.get("more", 0) + examples
            else:
                row |= {"taught": True, "from": one.about["source"]}
                row |= {"examples": examples} if one.about["source"] == "examples" else {}
        undo = [{"action": one.action, "label": one.label} for one in now.state.undoable[-1:]]
        document = {"change": now.change, "labels": list(rows.values()), "undo": undo[0] if undo else None}
        return self._told(document, now.seen)

    async def metrics(self, _: Request, __: Nothing) -> Response:
        """Return counts and times."""
        now = await self.engine.snapshot()
        gauges = {
            "labelwise_queue_length": self.engine.batcher.length,
            "labelwise_labels": len(now.classifier.labels),
            "labelwise_changes": now.change,
            "labelwise_store_away_seconds": now.away,
        }
        about = {"content-type": "text/plain; version=0.0.4; charset=utf-8", **_headers(now.seen)}
        return Response(self.engine.metrics.text(gauges), headers=about)

    async def classify(self, request: Request, options: Promises) -> Response:
        """Return the labels of an image."""
        scores, seen = await self._scores(request)
        prior = None
        if options.prior is not None:
            prior = parse_occurring(options.prior, scores.classifier)
            scores = scores.of(restrict(scores.classifier, prior))
        several, rule = scores.classifier.calibration.multilabel, scores.classifier.familiarity.rule
        most = len(scores.classifier.labels) if several else options.top
        (prediction,) = classify(scores, top=most, coverage=options.coverage, max_error=options.max_error)
        listed = prediction.top if options.coverage else prediction.top[: options.top]
        document: dict[str, Any] = {
            "label": prediction.label,
            "known": prediction.known,
            "probability": prediction.probability,
            "top": [{"label": name, "probability": value} for name, value in listed],
            "outlier": None if rule is None else _outlier(scores),
            "multilabel": several,
            "change": seen.change,
        }
        if prediction.parents is not None:
            document["parents"] = list(prediction.parents)
        if prior is not None:
            document["prior"] = {"labels": len(scores.classifier.labels), "others": list(prior.unknown_names)}
        if several:
            limits = scores.classifier.thresholds
            document["answers"] = [
                {"label": name, "yes": p >= limits.get(name, HALF), "probability": p} for name, p in prediction.top
            ]
        return self._told(document, seen)

    async def ask(self, request: Request, options: About) -> Response:
        """Return yes or no."""
        if (options.label is None) == (options.text is None):
            raise HTTPError(400, "Ask about either a label (?label=NAME) or a sentence (?text=...).")
        scores, label, seen = await self._scores_about(request, options)
        assert label is not None
        task = partial(ask, scores, label)
        (answer,) = task() if options.text is None else await self.engine.in_thread(task)
        about = {"text": options.text} if options.label is None else {"label": label}
        return self._told({**about, "yes": answer.yes, "probability": answer.probability, "change": seen.change}, seen)

    async def explain(self, request: Request, options: AboutWhy) -> Response:
        """Return a heat map."""
        text = options.text
        if options.label is not None and text is not None:
            raise HTTPError(400, "Explain a label (?label=NAME) or a sentence (?text=...), not both.")
        self.engine.check("explain")
        scores, label, seen = await self._scores_about(request, options)
        against = None if options.against is None else known_label(scores.classifier, options.against, _headers(seen))
        why = await self.engine.in_thread(lambda: explain(scores, label, against))
        height, width = why.heat.shape
        about: dict[str, Any] = {"label": why.label} if text is None else {"text": text}
        about |= {"probability": why.probability, "heat": _rounded(why.heat)}
        if why.heat_against is not None:
            about |= {"against": why.against, "heat_against": _rounded(why.heat_against)}
        return self._told({**about, "height": height, "width": width, "change": seen.change}, seen)

    async def outliers(self, request: Request, _: Nothing) -> Response:
        """Return an outlier score."""
        self.engine.check("outliers")
        scores, seen = await self._scores(request)
        return self._told(_outlier(scores), seen)

    async def verify(self, request: Request, _: Nothing) -> Response:
        """Return whether two images show the same label."""
        self.engine.check("verify")
        images = await read_form(request, self.engine.service, {"a": 1, "b": 1})
        scores, seen = await self.engine.scores(images)
        (pair,) = await self.engine.in_thread(lambda: verify(scores[:1], scores[1:]))
        rule = scores.classifier.verifier
        assert rule is not None
        document = {"same": pair.same, "similarity": pair.score, "probability": pair.probability}
        return self._told({**document, "threshold": rule.threshold}, seen)

    async def retrieve(self, request: Request, options: Top) -> Response:
        """Return the most similar images of the gallery."""
        self.engine.check("retrieve")
        return await self._near(*await self._scores(request), options.top)

    async def search(self, _: Request, options: Words) -> Response:
        """Return the images of the gallery that a sentence fits best."""
        for needed in ("retrieve", "ask_text"):
            self.engine.check(needed)
        now = await self.engine.snapshot()
        return await self._near(Sentence(now.classifier, options.text), now.seen, options.top)

    async def _near(self, query: Scores | Sentence, seen: Seen, count: int) -> Response:
        gallery = self.engine.gallery
        assert gallery is not None
        near = await self.engine.in_thread(lambda: gallery.near(query, count))
        rows = [{"file": name, "similarity": score, "image": f"/gallery/{id}"} for name, id, score in near]
        return self._told({"matches": rows}, seen)

    async def teach(self, request: Request, options: AboutTaught) -> Response:
        """Add a label; like every change, it is answered once it is on disk."""
        if self.engine.service.read_only:
            self.engine.check("teach_examples")
        body, images = await read_examples(request, self.engine.service)
        if options.label is not None and body.label is not None and options.label != body.label:
            raise HTTPError(400, f'The request has two different labels: "{options.label}" and "{body.label}".')
        name = options.label or body.label
        if not name:
            raise HTTPError(400, "Give the label to teach: ?label=NAME.")
        if not images and (body.texts is None) == (body.vector is None):
            raise HTTPError(400, "Describe a label either by texts or by a vector.")
        source: Source = "examples" if images else "vector" if body.texts is None else "texts"
        self.engine.check(f"teach_{source}")
        if sum(map(len, body.texts or ())) > 10 * MOST_TEXT:
            raise HTTPError(400, f"The texts of a label have at most {10 * MOST_TEXT} characters in all.")
        name = label_name(name)
        examples = (await self.engine.scores(images))[0] if images else None
        description: dict[str, Any] = {"texts": body.texts, "vector": body.vector}
        check: str | None = None

        def task(now: Classifier) -> Classifier:
            nonlocal check
            if examples is None:
                return teach(now, name, parent=options.parent, **description)
            about = rehearse(now, name, examples.of(now), **description)
            check = about.words(name, [f"image {i + 1}" for i in range(about.examples)])
            return teach(now, name, examples=examples.of(now), parent=options.parent, **description)

        done = await self.engine.change(lambda: self.engine.live.teach(name, source, task, len(images)))
        return self._changed(done, label=name, check=check)

    async def correct(self, request: Request, options: AboutLabel) -> Response:
        """Teach a known label more images."""
        self.engine.check("teach_examples")  # taught labels can always learn more, trained ones perhaps not
        _, images = await read_examples(request, self.engine.service)
        if not images:
            raise HTTPError(400, "A correction consists of images of a known label.")
        examples = (await self.engine.scores(images))[0]

        def task(now: Classifier, label: str) -> Classifier:
            return teach(now, label, examples=examples.of(now))

        done = await self.engine.change(lambda: self.engine.live.correct(options.label, task, len(images)))
        return self._changed(done, label=done.label)

    async def forget(self, _: Request, options: AboutLabel) -> Response:
        """Remove a label."""
        self.engine.check("forget")
        done = await self.engine.change(lambda: self.engine.live.forget(options.label))
        return self._changed(done, label=done.label)

    async def undo(self, _: Request, __: Nothing) -> Response:
        """Undo the last change."""
        self.engine.check("undo")
        done = await self.engine.change(self.engine.live.undo)
        return self._changed(done, undone={"action": done.undone, "label": done.label})

    async def gallery_image(self, id: str) -> Response:
        """Return an image of the gallery as a small JPEG."""
        if self.engine.gallery is None:
            raise HTTPError(404, "There is no gallery. Start the service with --gallery FOLDER.")
        content = await asyncio.to_thread(self.engine.gallery.image, id, self.engine.service.pixels)
        return Response(content, media_type="image/jpeg")

    async def example_image(self, id: str) -> Response:
        """Return an example image unchanged."""
        example = self.engine.examples.get(id)
        if example is None:
            raise MISSING
        return Response(example.content, media_type=example.media_type)

    def _told(self, document: dict[str, Any], seen: Seen) -> Response:
        return reply(document, headers=_headers(seen))

    def _changed(self, done: Committed, **about: Any) -> Response:
        return self._told({**about, "labels": done.labels, "change": done.change}, Seen(done.change))

    async def _scores(self, request: Request) -> tuple[Scores, Seen]:
        return await self.engine.scores([await read_image(request, self.engine.service)])

    async def _scores_about(self, request: Request, options: About) -> tuple[Scores, str | None, Seen]:
        """Return the scores of an image, the label in question, and how current the scores are."""
        text, label = options.text, options.label
        if text is not None:
            self.engine.check("ask_text")
        scores, seen = await self._scores(request)
        if text is not None:
            return await self.engine.in_thread(lambda: with_text(scores, text)), DRAFT, seen
        return scores, None if label is None else known_label(scores.classifier, label, _headers(seen)), seen


def _headers(seen: Seen) -> dict[str, str]:
    """Return the headers that say how current an answer is."""
    stale = {"Labelwise-Stale": f"{seen.away:.1f}"} if seen.away else {}
    return {"Labelwise-Change": str(seen.change), **stale}


def _rounded(heat: NDArray[np.float32]) -> list[list[float]]:
    return [[round(value, 4) for value in line] for line in heat.tolist()]


def _outlier(scores: Scores) -> dict[str, Any]:
    (outlier,) = outliers(scores)
    return {"score": outlier.score, "flagged": outlier.flagged, "threshold": scores.classifier.familiarity.limit}
