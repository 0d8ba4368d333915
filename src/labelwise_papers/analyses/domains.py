"""Leave one domain out: train on all domains but one (a camera, a style), test on that one, for each in turn.

Which epoch and which settings are reported is chosen by two rules. ``strict``: by validation images of the training domains, so the
held-out domain stays unseen. ``oracle``: by the held-out domain itself, as papers on PACS often do; it flatters, and is there to be
compared with their figures.
"""

import copy
import json
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from labelwise.fitting.steps import Trained
from labelwise.fitting.training import training_data
from labelwise.images.dataset import Dataset, Split
from labelwise.images.describe.labels import Labels
from labelwise.images.split.divide import pool, resplit
from labelwise.images.split.make import hold_out_domain
from labelwise.methods.prototype.method import Head, PrototypeModel
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.support.files import read_text
from labelwise.support.settings import to_plain
from labelwise.support.writable import write_atomically
from labelwise.train.loop import train
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel
from labelwise_papers.analyses.snapshots import accuracy, through_snapshots

RESULT = "result.json"
Views = Mapping[str, Callable[[LabelModel], LabelModel]]  # of a trained model, by name


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model that may be chosen."""

    method: int  # which of the methods, from 0
    epochs: int  # how many it was trained for; of the last stage, where there are several. 0 is a whole run
    validation: float  # accuracy on validation images of the training domains
    test: float  # accuracy on the held-out domain


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """What was found with one domain held out."""

    domain: str
    candidates: tuple[Candidate, ...]

    @property
    def strict(self) -> Candidate:
        """The best on validation images; of equal ones the last."""
        return max(reversed(self.candidates), key=lambda each: each.validation)

    @property
    def oracle(self) -> Candidate:
        """The best on the held-out domain itself."""
        return max(reversed(self.candidates), key=lambda each: each.test)


@dataclass(frozen=True, kw_only=True)
class DomainsResult:
    """Accuracy on each domain by models that were trained on the others."""

    domains: tuple[HeldOut, ...]

    @property
    def strict(self) -> float:
        """The mean accuracy over domains, every choice made on validation images of training domains."""
        return sum(each.strict.test for each in self.domains) / len(self.domains)

    @property
    def oracle(self) -> float:
        """The mean accuracy over domains, every choice made on the held-out domain: the papers' protocol."""
        return sum(each.oracle.test for each in self.domains) / len(self.domains)


def evaluate_domains(
    data: Dataset,
    methods: Method | Sequence[Method],
    run: Run | None = None,
    *,
    every: int = 0,
    domains: Sequence[str] = (),
) -> DomainsResult:
    """Return the accuracy on each domain by models trained on the others, see ``evaluate_domain_views``."""
    return evaluate_domain_views(data, methods, run, every=every, domains=domains, views={"": lambda model: model})[""]


def evaluate_domain_views(
    data: Dataset,
    methods: Method | Sequence[Method],
    run: Run | None = None,
    *,
    views: Views,
    every: int = 0,
    domains: Sequence[str] = (),
) -> dict[str, DomainsResult]:
    """Return the accuracy on each domain for several ways in which one trained model names labels, each chosen for itself.

    The data's own splits are forgotten; each label and domain gives a tenth of its images to validation. With a folder in
    ``run`` all that is finished is kept there, and the same call continues where it stopped.
    ``methods`` are settings to choose among, ``views`` what each way makes of a trained model, by name. A model is a candidate after
    each ``every`` epochs, and at the end; 0 means at the end only. ``domains`` are those to hold out; empty means all.
    """
    run, whole = run or Run(), pool(data)
    chosen = (methods,) if isinstance(methods, Method) else tuple(methods)
    _check(whole, chosen, every, data.name)
    whole = pool(data)
    data = replace(data, splits={"train": whole})  # so that pooling again, for each domain, copies no image
    content = zlib.crc32(b"".join(whole.images.digests()), zlib.crc32(whole.targets.tobytes()))
    held_out: dict[str, list[HeldOut]] = {}
    with tempfile.TemporaryDirectory() as place:
        for domain in domains or sorted({*whole.domains} - {""}):
            divided = hold_out(data, domain, run.seed)
            candidates: dict[str, list[Candidate]] = {}
            for number, method in enumerate(chosen):
                folder = Path(run.folder or place) / quote(domain, safe=" ") / str(number)
                own = replace(run, folder=folder, resume=True, snapshots=every)
                for view, more in _candidates(divided, method, own, views, content).items():
                    candidates.setdefault(view, []).extend(replace(each, method=number) for each in more)
            for view, each in candidates.items():
                held_out.setdefault(view, []).append(HeldOut(domain=domain, candidates=tuple(each)))
    return {view: DomainsResult(domains=tuple(each)) for view, each in held_out.items()}


def with_head(head: Head, model: LabelModel) -> LabelModel:
    """Return a ``prototype`` that scores labels by this head."""
    if not isinstance(model, PrototypeModel):
        raise UsageError("Heads are those of a prototype; this model has none.")
    other = copy.deepcopy(model)
    other.head = head
    return other


def hold_out(data: Dataset, domain: str, seed: int) -> Dataset:
    """Return the data with one domain as test; a tenth of each label and domain of the others is val, the rest train."""
    whole = pool(data)
    return resplit(data, hold_out_domain(whole.targets, whole.domains, domain, seed))


def _check(whole: Split, methods: tuple[Method, ...], every: int, name: str) -> None:
    if not whole.domains:
        raise DataError(f'"{name}" has no domains. Add a column "domain" to its table.')
    if whole.multilabel:
        raise UnsupportedError("Several labels may be true of these images; domains are compared by accuracy on one.")
    if not methods or every < 0:
        raise UsageError(f"Give at least one method, and epochs of 0 or more; given {len(methods)} and {every}.")
    for method in methods:
        if method.zero_shot or not method.uses_targets:
            raise UnsupportedError(
                f"Method {method.name} chooses its settings on labels held out, not on domains. Use one that learns from "
                "labelled images alone, such as softmax or prototype."
            )


def _candidates(data: Dataset, method: Method, run: Run, views: Views, content: int) -> dict[str, list[Candidate]]:
    """Return what one run offers in every view, from its folder where it is finished."""
    assert run.folder is not None
    about: dict[str, Any] = {"method": method.name, "settings": to_plain(method), "seed": run.seed, "data": content}
    about = json.loads(json.dumps({**about, "every": run.snapshots, "views": list(views)}))
    done = run.folder / RESULT
    if done.exists():
        document = json.loads(read_text(done))
        if document["about"] != about:
            raise UsageError(
                f"The result in {run.folder} is of other settings or data. Give another folder, or delete that one."
            )
        return {view: [Candidate(**each) for each in one] for view, one in document["candidates"].items()}
    seen = training_data(replace(data, splits={name: data.splits[name] for name in ("train", "val")}), run.seed)
    model, _ = train(method, seen, run)
    last = {view: _measure(of(model), seen.labels, data, 0) for view, of in views.items()}
    candidates: dict[str, list[Candidate]] = {view: [] for view in views}
    for epochs in through_snapshots(model, run.folder):
        for view, of in views.items():
            candidates[view].append(_measure(of(model), seen.labels, data, epochs))
    for view, candidate in last.items():
        candidates[view].append(candidate)
    document = {
        "about": about,
        "candidates": {view: [asdict(each) for each in one] for view, one in candidates.items()},
    }
    write_atomically(done, (json.dumps(document, indent=1) + "\n").encode())
    for file in run.folder.glob("*.safetensors"):
        file.unlink()
    return candidates


def _measure(model: LabelModel, labels: Labels, data: Dataset, epochs: int) -> Candidate:
    """Return the accuracies of a model."""
    classifier = Trained.of(model).bind(labels)
    validation, test = (accuracy(classifier, data.split(name), data.labels) for name in ("val", "test"))
    return Candidate(method=0, epochs=epochs, validation=validation, test=test)
