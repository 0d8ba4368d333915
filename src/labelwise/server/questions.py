"""Questions of requests, answered for a whole batch: each picture is encoded once, and scores are shared."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from labelwise.core import NONE, UNKNOWN, Classifier
from labelwise.errors import LabelwiseError
from labelwise.server.answers import MOST_TOP
from labelwise.server.batching import Job
from labelwise.server.changing import Changing, Served, check_known, check_new
from labelwise.server.lessons import Lesson, Source, lesson_from
from labelwise.server.refusals import Refusal, refusal_of
from labelwise.tasks.explain import heat_maps
from labelwise.tasks.outliers import flag_outliers, outlier_scores
from labelwise.tasks.retrieve import search
from labelwise.tasks.teach import teach
from labelwise.tasks.verify import pair_scores

DRAFT = "\u0000 asked"  # the name of a label that lives for one question; no client can choose it
Answer = dict[str, Any]


class Sheet:
    """What is known of the pictures of a batch, computed once when first needed."""

    def __init__(self, served: Served, images: Tensor, codes: Tensor) -> None:
        self.served, self.images, self.codes = served, images, codes
        self.classifier = served.classifier

    @cached_property
    def scores(self) -> Tensor:
        """Calibrated scores ``[n, k]``."""
        return self.classifier.scores_of_codes(self.codes.float())

    @cached_property
    def answers(self) -> Tensor:
        """How probable a yes to each label is ``[n, k]``."""
        return self.classifier.answers(self.scores)

    @cached_property
    def said(self) -> Tensor:
        """What is told of each label ``[n, k]``: its probability among the labels, or of a yes where several may be true."""
        return self.answers if self.classifier.multilabel else self.classifier.probabilities(self.scores)

    @cached_property
    def ranked(self) -> tuple[list[list[float]], list[list[int]]]:
        """The largest of ``said`` and their labels, best first, ``top`` of each picture or all."""
        k = self.said.shape[1]
        values, columns = self.said.topk(k if self.classifier.multilabel else min(k, MOST_TOP))
        return values.tolist(), columns.tolist()

    @cached_property
    def strange(self) -> list[float]:
        """Outlier scores."""
        return outlier_scores(self.classifier, self.codes).tolist()

    @cached_property
    def flags(self) -> list[bool]:
        """Whether each is past the limit."""
        return flag_outliers(self.classifier, torch.tensor(self.strange)).tolist()


@dataclass(frozen=True)
class Classify:
    """What is it?"""

    top: int

    def answer(self, sheet: Sheet, row: int) -> Answer:
        """Return the best labels of a picture."""
        classifier, names = sheet.classifier, sheet.classifier.labels.names
        best = [(names[c], v) for v, c in zip(sheet.ranked[0][row], sheet.ranked[1][row], strict=True)]
        rule, known = classifier.outlier, not sheet.flags[row]
        yes = [name for name, value in best if value >= 0.5] if classifier.multilabel else [best[0][0]]
        found = yes if known else []
        outlier = rule and {"score": sheet.strange[row], "flagged": not known, "threshold": rule.limit}
        made: Answer = {
            "label": found[0] if found else NONE if known else UNKNOWN,
            "known": bool(found),
            "probability": best[0][1],
            "top": [{"label": name, "probability": value} for name, value in best[: self.top]],
            "outlier": outlier,
            "multilabel": classifier.multilabel,
            "change": sheet.served.change,
        }
        if classifier.multilabel:
            made["answers"] = [{"label": name, "yes": value >= 0.5, "probability": value} for name, value in best]
        return made


@dataclass(frozen=True)
class Ask:
    """Is it a y, a label or what a sentence says?"""

    label: str | None
    text: str | None

    def answer(self, sheet: Sheet, row: int) -> Answer:
        """Return yes or no with a probability."""
        if self.label is not None:
            column = check_known(sheet.classifier, self.label)
            probability = float(sheet.answers[row, column])
        else:
            classifier = with_text(sheet.classifier, self.text or "")
            codes = sheet.codes[row : row + 1].float()
            probability = float(classifier.answers(classifier.scores_of_codes(codes))[0, -1])
        about = {"label": self.label} if self.label is not None else {"text": self.text}
        return {**about, "yes": probability >= 0.5, "probability": probability, "change": sheet.served.change}


@dataclass(frozen=True)
class Explain:
    """Why?"""

    label: str | None
    text: str | None

    def answer(self, sheet: Sheet, row: int) -> Answer:
        """Return a heat map."""
        classifier = sheet.classifier if self.text is None else with_text(sheet.classifier, self.text)
        scores = classifier.scores_of_codes(sheet.codes[row : row + 1].float())
        if self.text is not None:
            column = len(classifier.labels) - 1
        else:
            column = int(scores.argmax(1)) if self.label is None else check_known(classifier, self.label)
        heat = heat_maps(classifier, sheet.images[row : row + 1], torch.tensor([column]))[0].cpu()
        about = {"label": classifier.labels.names[column]} if self.text is None else {"text": self.text}
        return {
            **about,
            "probability": float(classifier.answers(scores)[0, column]),
            "heat": [[round(value, 4) for value in line] for line in heat.tolist()],
            "height": heat.shape[0],
            "width": heat.shape[1],
            "change": sheet.served.change,
        }


@dataclass(frozen=True)
class Outliers:
    """Is it none of the labels?"""

    def answer(self, sheet: Sheet, row: int) -> Answer:
        """Return the outlier score."""
        rule = sheet.classifier.outlier
        assert rule is not None
        return {"score": sheet.strange[row], "flagged": sheet.flags[row], "threshold": rule.limit}


@dataclass(frozen=True)
class Verify:
    """Do two pictures show the same?"""

    def answer(self, sheet: Sheet, row: int) -> Answer:
        """Return the score of the pair that starts at this row."""
        rule = sheet.classifier.verification
        assert rule is not None
        score = float(
            pair_scores(sheet.classifier.model, sheet.codes[row : row + 1], sheet.codes[row + 1 : row + 2], rule.by)
        )
        chance = float(torch.tensor(score * rule.scale + rule.offset, dtype=torch.float64).sigmoid())
        return {
            "same": score >= rule.threshold,
            "similarity": score,
            "probability": chance,
            "threshold": rule.threshold,
        }


@dataclass(frozen=True, eq=False)
class Retrieve:
    """Which pictures of a gallery are most like it?"""

    gallery: Tensor
    top: int

    def answer(self, sheet: Sheet, row: int) -> Answer:
        """Return rows of the gallery and their similarities."""
        scores, places = search(sheet.classifier.model, sheet.codes[row : row + 1], self.gallery, self.top)
        return {"rows": places[0].tolist(), "similarities": scores[0].tolist()}


@dataclass(frozen=True)
class Teach:
    """Make a lesson of pictures or of a description; the codes need no other label, so nobody waits for it."""

    label: str
    texts: tuple[str, ...] | None = None
    vector: tuple[float, ...] | None = None

    def lesson(self, classifier: Classifier, images: Tensor) -> Lesson:
        """Return what the classifier would gain."""
        check_new(classifier, self.label)
        source: Source = "examples" if len(images) else "texts" if self.texts is not None else "vector"
        examples = images if len(images) else None
        taught = teach(classifier, self.label, examples=examples, texts=self.texts, vector=self.vector)
        return lesson_from(classifier, taught, source)


def with_text(classifier: Classifier, text: str) -> Classifier:
    """Return the classifier with one more label at the end: what a sentence says."""
    return teach(classifier, DRAFT, texts=[text])


class Answering:
    """Answers batches in the thread that owns the model."""

    def __init__(self, changing: Changing) -> None:
        self.changing = changing

    def __call__(self, jobs: Sequence[Job], images: Tensor) -> list[Any]:
        """Return an answer or an exception for each job, all by one classifier; pictures to learn from are not encoded here."""
        served = self.changing.peek()
        rows: list[int | None] = []
        asked: list[int] = []
        start = 0
        for job in jobs:
            count = len(job.pictures)
            rows.append(None if isinstance(job.question, Teach) else len(asked))
            if not isinstance(job.question, Teach):
                asked += range(start, start + count)
            start += count
        chosen = images if len(asked) == len(images) else images[asked]
        with torch.no_grad():
            codes = served.classifier.encode(chosen) if asked else torch.empty(0)
            sheet = Sheet(served, chosen, codes)
            return [self._one(sheet, job, row) for job, row in zip(jobs, rows, strict=True)]

    def _one(self, sheet: Sheet, job: Job, row: int | None) -> Any:
        try:
            if row is None:
                images = torch.empty(0) if job.images is None else job.images
                return job.question.lesson(sheet.classifier, images)
            return job.question.answer(sheet, row)
        except LabelwiseError as error:
            return refusal_of(error)
        except Exception as error:  # a refusal, or a fault that is this request's own
            return error


__all__ = ["Answering", "Ask", "Classify", "Explain", "Outliers", "Refusal", "Retrieve", "Teach", "Verify"]
