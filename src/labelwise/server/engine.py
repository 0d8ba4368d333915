"""One service in one process: the classifier, its journal, the threads, and what the routes do with them."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar

import torch

from labelwise.core import NONE, UNKNOWN, Classifier
from labelwise.data.decoding import QUIET, Frame
from labelwise.distributed import choose_device
from labelwise.server.abilities import abilities, card, check_pictures
from labelwise.server.batching import Batcher, Limits
from labelwise.server.changing import Changing, Served, check_new, journal_folder
from labelwise.server.journal import Journal
from labelwise.server.lessons import Lesson
from labelwise.server.measures import Measures
from labelwise.server.questions import Answering, Retrieve, Teach
from labelwise.server.refusals import Refusal
from labelwise.server.settings import Service
from labelwise.server.shown import Shown, open_examples, open_gallery
from labelwise.store import digest_of, load, shape_of

LONGEST_NAME = 200
T = TypeVar("T")


class Engine:
    """What the routes work with.

    Attributes:
        service: the settings.
        changing: the present classifier and its changes.
        can: for each question None, or why the model cannot answer it.
        card: what does not change about the model.
        gallery: pictures to search in.
        examples: pictures to try.
    """

    def __init__(self, service: Service, measures: Measures) -> None:
        self.service, self.measures = service, measures
        check_pictures(shape_of(service.model))
        base = load(service.model, device=choose_device(service.device))
        self.changing = Changing(base, Journal(journal_folder(service.model), digest_of(service.model)))
        self.shared = service.read_only or service.workers > 1  # other processes may change the labels
        self.set_aside = None if service.read_only else self.changing.restore()
        self.changing.present()
        self.gallery = None if service.gallery is None else open_gallery(base, service.gallery)
        self.examples = open_examples(service.examples) if service.examples else Shown((), {})
        self.can = abilities(base, service, self.gallery)
        self.card = card(base, service, self.can)
        channels, height, width = base.model.spec.shape
        frame = Frame(height, width, channels, service.pixels)
        cores = max(1, (os.cpu_count() or 1) // service.workers)
        limits = Limits(
            most=service.batch,
            wait=service.wait / 1000,
            decoders=min(4, cores),
            threads=max(1, cores - 1),  # one core is left for reading requests and decoding
        )
        self.batcher = Batcher(frame, Answering(self.changing), limits, measures.batch)
        self._writer = ThreadPoolExecutor(1, "write")

    def start(self) -> None:
        """Start the threads."""
        QUIET.__enter__()
        self.batcher.start()

    def stop(self) -> None:
        """Finish what was accepted and end the threads."""
        self.batcher.stop()
        self._writer.shutdown()
        QUIET.__exit__()
        self.measures.leave()

    async def present(self) -> Served:
        """Return the present classifier, with what other workers have changed."""
        if self.shared and self.changing.journal.changed():
            return await asyncio.get_running_loop().run_in_executor(None, self.changing.present)
        return self.changing.peek()

    def check(self, what: str) -> None:
        """Refuse a question that the model cannot answer."""
        why = self.can[what]
        if why is not None:
            change = what.startswith("teach") or what in ("forget", "undo")
            raise Refusal(403 if change and self.service.read_only else 422, why)

    async def ask(self, question: Any, pictures: Sequence[bytes]) -> Any:
        """Return the answer to a question about pictures."""
        await self.present()
        return await self.batcher.ask(question, pictures)

    async def retrieve(self, picture: bytes, top: int) -> list[dict[str, Any]]:
        """Return the pictures of the gallery that are most like one."""
        gallery = self.gallery
        assert gallery is not None
        assert gallery.codes is not None
        found = await self.ask(Retrieve(gallery.codes, top), [picture])
        ids = gallery.ids
        return [
            {"file": gallery.names[row], "similarity": value, "picture": f"/gallery/{ids[row]}"}
            for row, value in zip(found["rows"], found["similarities"], strict=True)
        ]

    async def teach(self, question: Teach, pictures: Sequence[bytes]) -> Served:
        """Add a label; it is on disk when this returns."""
        check_name(question.label)
        served = await self.present()
        check_new(served.classifier, question.label)
        draft: Lesson = await self.batcher.ask(question, pictures)
        return await self._write(lambda: self.changing.teach(lambda now: _placed(draft, now, question.label)))

    async def forget(self, label: str) -> Served:
        """Remove a label; that is on disk when this returns."""
        return await self._write(lambda: self.changing.forget(label))

    async def undo(self) -> tuple[dict[str, str], Served]:
        """Take back the last change; that is on disk when this returns."""
        undone, served = await self._write(self.changing.undo)
        return {"action": undone.action, "label": undone.label}, served

    async def _write(self, work: Callable[[], T]) -> T:
        """Do a change in the one thread that writes; a client that goes away does not stop it half-way."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._writer, work))


def check_name(label: str) -> None:
    """Refuse what cannot be the name of a label."""
    if not label.strip() or label.strip() in (UNKNOWN, NONE):
        raise Refusal(400, f'"{label}" cannot be the name of a label.')
    if len(label) > LONGEST_NAME or not label.isprintable():
        raise Refusal(400, f"A label has at most {LONGEST_NAME} characters, all of them printable.")


def _placed(draft: Lesson, now: Classifier, label: str) -> Lesson:
    """Return the lesson with its name, and the scale and offset that it gets among the present labels."""
    check_new(now, label)
    labels = now.labels.add(label, vector=draft.vector, texts=draft.texts)
    with torch.no_grad():
        added = now.add(labels, draft.code, described=draft.described)
    return replace(draft, label=label, scale=float(added.scale[-1]), offset=float(added.offset[-1]))
