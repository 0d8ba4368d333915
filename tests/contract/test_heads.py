"""The head of every method says what its torch model says, is saved whole, and never needs torch."""

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import labelwise
from labelwise.core.head import Compares, Generates, Head, LearnsFromExamples
from labelwise.core.saved_parts import HEADS, pack, unpack
from labelwise.methods import METHODS
from labelwise.methods.shared.linear import array
from labelwise.support.errors import UsageError
from labelwise.train.model import as_float
from tests.changed import model_of
from tests.contract.subjects import subject_of, trained

NAMES = list(METHODS)
ROOT = Path(labelwise.__file__).parent.parent


def both(name: str) -> tuple[Any, Head, torch.Tensor, Any]:
    """The model of a method, its head, image embeddings by the model, and features for the head."""
    model: Any = model_of(trained(name))
    images = as_float(torch.from_numpy(subject_of(name).images))
    with torch.no_grad():
        embeddings = model.encode_images(images).float()
        features = model.prepare(images) if model.encoder.frozen else model.encoder(images)
    return model, model.export_head(), embeddings, array(features)


def close(found: Any, wanted: Any) -> None:
    wanted = array(wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1.0, float(abs(wanted).max())))


@pytest.mark.parametrize("name", NAMES)
def test_head_agrees_with_its_model(name: str) -> None:
    model, head, embeddings, features = both(name)
    labels = trained(name).labels
    with torch.no_grad():
        label_embeddings = model.encode_labels(labels).float()
        scores = model.score(embeddings, label_embeddings)
    assert head.width == features.shape[1]
    assert head.exclusive == model.exclusive
    close(head.embed(features), embeddings)
    close(head.embed_labels(labels), label_embeddings)
    close(head.score(head.embed(features), head.embed_labels(labels)), scores)


@pytest.mark.parametrize("name", NAMES)
def test_head_compares_and_generates_as_its_model(name: str) -> None:
    model, head, embeddings, features = both(name)
    assert isinstance(head, LearnsFromExamples)
    own = head.embed(features)
    assert isinstance(head, Compares) == hasattr(model, "compare")
    with torch.no_grad():
        if isinstance(head, Compares):
            close(head.similarity(own, own[:5]), model.compare(embeddings, embeddings[:5]))
            close(head.matched(own[:5], own[5:10]), model.compare(embeddings[:5], embeddings[5:10]).diagonal())
        if isinstance(head, Generates):
            close(head.comparable(features), model.features_of(as_float(torch.from_numpy(subject_of(name).images))))


@pytest.mark.parametrize("name", NAMES)
def test_head_is_saved_whole(name: str) -> None:
    _, head, _, features = both(name)
    packed = pack(head)
    back = unpack(packed)
    assert type(back) is type(head)
    labels = trained(name).labels
    embeddings = head.embed(features)
    assert np.array_equal(back.embed(features), embeddings)
    assert np.array_equal(back.embed_labels(labels), head.embed_labels(labels))
    assert np.array_equal(
        back.score(embeddings, head.embed_labels(labels)), head.score(embeddings, head.embed_labels(labels))
    )
    assert pack(back).settings == packed.settings


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_another_shape_or_kind_are_refused(name: str) -> None:
    packed = pack(both(name)[1])
    declared = [each for each in packed.arrays if "state/" not in each and "generator/" not in each]
    for each in declared:
        for wrong in (packed.arrays[each][None], packed.arrays[each] > 0):
            with pytest.raises((UsageError, ValueError)):
                unpack(replace(packed, arrays={**packed.arrays, each: wrong}))
    with pytest.raises(UsageError, match="no array"):
        unpack(replace(packed, arrays={**packed.arrays, "more": np.zeros(3)}))
    with pytest.raises(UsageError, match="No setting"):
        unpack(replace(packed, settings={**packed.settings, "more": 3}))
    for each in packed.settings:
        with pytest.raises((UsageError, LookupError)):
            unpack(replace(packed, settings={**packed.settings, each: {"a": object}}))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_depends_on_its_own_features_alone(name: str) -> None:
    _, head, _, features = both(name)
    labels = head.embed_labels(trained(name).labels)
    whole = head.score(head.embed(features), labels)
    np.testing.assert_allclose(head.score(head.embed(features[3:4]), labels), whole[3:4], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(head.score(head.embed(features), labels[:2]), whole[:, :2], rtol=1e-4, atol=1e-4)


def test_no_head_imports_torch() -> None:
    """Whatever a head imports from its own package is looked at, too."""
    seen, left = set[str](), [place.partition(":")[0] for place in HEADS.values()] + ["labelwise.core.saved_parts"]
    while left:
        module = left.pop()
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        if module in seen or not path.exists() or ".images." in module:
            continue
        seen.add(module)
        for node in ast.parse(path.read_text()).body:
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            assert "torch" not in {name.partition(".")[0] for name in names}, module
            left += [name for name in names if name.startswith("labelwise.")]
