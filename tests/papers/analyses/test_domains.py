import copy
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from labelwise.fitting.fit import fit
from labelwise.images.dataset import Dataset
from labelwise.methods import Eszsl, ImageMethod
from labelwise.methods.prototype.method import PrototypeModel
from labelwise.support.errors import DataError, UnsupportedError, UsageError
from labelwise.train.method import Method, Run
from labelwise.train.model import LabelModel
from labelwise_papers.analyses import domains as module
from labelwise_papers.analyses.domains import (
    Candidate,
    DomainsResult,
    HeldOut,
    Views,
    evaluate_domain_views,
    evaluate_domains,
    hold_out,
)
from labelwise_papers.benchmarks import load_benchmark
from tests.changed import bind_model, model_of
from tests.conftest import blobs, quick, squares
from tests.papers.benchmarks.made import pacs
from tests.pixels_of import px

STYLES = ("day", "dusk", "night")


def styled() -> Dataset:
    """Blobs in three domains that differ in brightness."""
    data = blobs(3, per_label=54)
    splits = {}
    for name, split in data.splits.items():
        turn = torch.arange(len(split)) // 3 % 3
        dimmed = px(split).float() * torch.tensor([1.0, 0.6, 0.3])[turn].view(-1, 1, 1, 1)
        splits[name] = replace(split, images=dimmed.byte(), domains=tuple(STYLES[i] for i in turn))
    return replace(data, splits=splits)


def brief(name: str = "softmax", epochs: int = 4) -> Method:
    method = quick(name, epochs)
    assert isinstance(method, ImageMethod)
    return method


def test_a_domain_is_held_out_whole() -> None:
    data = hold_out(styled(), "dusk", 0)
    assert set(data.split("test").domains) == {"dusk"}
    assert len(data.split("test")) == 54
    for part in ("train", "val"):
        assert set(data.split(part).domains) == {"day", "night"}
    held = data.split("val")
    assert len(held) == 12, "a tenth of the 18 images of each label and domain"
    counts = {(d, t): 0 for d in ("day", "night") for t in range(3)}
    for domain, target in zip(held.domains, held.targets.tolist(), strict=True):
        counts[domain, target] += 1
    assert set(counts.values()) == {2}


def test_rules_of_choice() -> None:
    pairs = [(0.5, 0.9), (0.8, 0.4), (0.8, 0.6), (0.7, 0.7)]
    candidates = tuple(Candidate(method=0, epochs=i, validation=v, test=t) for i, (v, t) in enumerate(pairs))
    one = HeldOut(domain="day", candidates=candidates)
    assert (one.strict.epochs, one.oracle.epochs) == (2, 0)
    result = DomainsResult(domains=(one, HeldOut(domain="dusk", candidates=candidates[1:2])))
    assert result.strict == pytest.approx((0.6 + 0.4) / 2)
    assert result.oracle == pytest.approx((0.9 + 0.4) / 2)


@pytest.mark.parametrize("name", ["softmax", "prototype"])
def test_candidates_are_what_fit_would_give(name: str) -> None:
    run = Run(device="cpu", seed=1)
    found = evaluate_domains(styled(), brief(name), run, every=1, domains=["night"])
    (one,) = found.domains
    assert [each.epochs for each in one.candidates] == [1, 2, 3, 4, 0]
    assert one.candidates[3] == replace(one.candidates[4], epochs=4), "the last snapshot is the end"
    assert replace(one.candidates[0], epochs=4) != one.candidates[3]
    data = hold_out(styled(), "night", 1)
    classifier = fit(data, brief(name), run)
    raw = bind_model(model_of(classifier), classifier.labels)
    for part, accuracy in (("val", one.candidates[4].validation), ("test", one.candidates[4].test)):
        split = data.split(part)
        assert accuracy == float((raw.scores(split.images).best == np.asarray(split.targets)).mean())


def test_finished_runs_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(device="cpu", folder=tmp_path)
    methods = [brief(), brief(epochs=6)]
    first = evaluate_domains(styled(), methods, run, every=2)
    assert [held.domain for held in first.domains] == list(STYLES)
    assert [each.method for each in first.domains[0].candidates] == [0] * 3 + [1] * 4
    left = sorted(path.name for path in (tmp_path / "day" / "0").iterdir())
    assert left == ["log.jsonl", "result.json"]
    monkeypatch.setattr(module, "train", lambda *_: pytest.fail("trained again"))
    assert evaluate_domains(styled(), methods, run, every=2) == first
    with pytest.raises(UsageError, match="is of other settings or data"):
        evaluate_domains(styled(), brief(epochs=5), run, every=2)


def by_dense_layer(model: LabelModel) -> LabelModel:
    assert isinstance(model, PrototypeModel)
    other = copy.deepcopy(model)
    other.head = "dol"
    return other


def test_views_of_one_model_are_chosen_each_for_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(device="cpu", folder=tmp_path, seed=1)
    views: Views = {"as it is": lambda model: model, "dense layer": by_dense_layer}
    found = evaluate_domain_views(styled(), brief("prototype"), run, views=views, every=1, domains=["night"])
    alone = evaluate_domains(styled(), brief("prototype"), Run(device="cpu", seed=1), every=1, domains=["night"])
    assert found["as it is"] == alone
    assert [each.epochs for each in found["dense layer"].domains[0].candidates] == [1, 2, 3, 4, 0]
    assert found["dense layer"] != alone
    monkeypatch.setattr(module, "train", lambda *_: pytest.fail("trained again"))
    again = evaluate_domain_views(styled(), brief("prototype"), run, views=views, every=1, domains=["night"])
    assert again == found
    with pytest.raises(UsageError, match="is of other settings or data"):
        evaluate_domains(styled(), brief("prototype"), run, every=1, domains=["night"])


def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = evaluate_domains(styled(), brief(), Run(device="cpu"), domains=["day"], every=1)
    run = Run(device="cpu", folder=tmp_path)
    monkeypatch.setattr(module, "_measure", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        evaluate_domains(styled(), brief(), run, domains=["day"], every=1)
    monkeypatch.undo()
    assert (tmp_path / "day" / "0" / "checkpoint.safetensors").exists()
    assert evaluate_domains(styled(), brief(), run, domains=["day"], every=1) == whole
    assert json.loads((tmp_path / "day" / "0" / "result.json").read_text())["about"]["every"] == 1


def test_errors() -> None:
    with pytest.raises(DataError, match='"blobs" has no domains'):
        evaluate_domains(blobs(), brief())
    with pytest.raises(UsageError, match='No domain "nite"'):
        evaluate_domains(styled(), brief(), domains=["nite"])
    with pytest.raises(UnsupportedError, match="Method eszsl chooses its settings"):
        evaluate_domains(styled(), Eszsl())
    with pytest.raises(UsageError, match="at least one method"):
        evaluate_domains(styled(), [])
    several = squares(60)
    parts = {n: replace(s, domains=("a", "b") * (len(s) // 2)) for n, s in several.splits.items()}
    with pytest.raises(UnsupportedError, match="Several labels may be true"):
        evaluate_domains(replace(several, splits=parts), brief())


def test_domains_of_pacs_are_held_out_as_the_benchmark_says(tmp_path: Path) -> None:
    pacs(tmp_path / "pacs/PACS", each=11)
    mine = hold_out(load_benchmark("pacs", root=tmp_path), "sketch", 0)
    theirs = load_benchmark("pacs", root=tmp_path, protocol="sketch")
    assert sorted(mine.split("test").files) == sorted(theirs.split("test").files)
    mine_counts, their_counts = ({name: len(split) for name, split in d.splits.items()} for d in (mine, theirs))
    assert mine_counts == their_counts
