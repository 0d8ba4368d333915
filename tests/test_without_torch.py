"""A saved classifier of every method answers in a process in which torch cannot be imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import labelwise as lw
from labelwise.core.store import save
from labelwise.methods import METHODS
from tests.conftest import blobs
from tests.contract.subjects import trained
from tests.pixels_of import px

ROOT = Path(__file__).parent.parent
ANSWERS = """
import json, sys
sys.modules["torch"] = None
import numpy as np
import labelwise as lw
from labelwise.methods.zero_label.rename import name_clusters, uncertain_clusters
from labelwise.tasks.gallery import make_gallery

folder = sys.argv[1]
images, targets = np.load(f"{folder}/images.npy"), np.load(f"{folder}/targets.npy")
said = {}
for method in sys.argv[2:]:
    classifier = lw.load(f"{folder}/{method}")
    taught = lw.teach(classifier, "new", examples=images[:5])
    gallery = make_gallery(classifier, images, [str(i) for i in range(len(images))])
    explained = lw.explain(classifier, images[:1])
    answers = {
        "log_odds": classifier.scores(images).log_odds.tolist(),
        "classify": [one.label for one in lw.classify(classifier, images)],
        "ask": [one.yes for one in lw.ask(classifier, images, "blob 1")],
        "taught": taught.scores(images).log_odds[:, -1].tolist(),
        "others": taught.scores(images).log_odds[:, :-1].tolist(),
        "heat": float(explained.heat.max()),
        "retrieve": [row[0].file for row in lw.retrieve(classifier, images, gallery, 1, candidates=None)],
    }
    if classifier.verifier is not None:
        answers["verify"] = [one.same for one in lw.verify(classifier, images[:4], images[4:8])]
    known = classifier.head.labels
    if method == "clarel":
        told = lw.teach(classifier, "told", texts=[known.texts[0][0]])
        answers["told"] = told.scores(images).log_odds[:, [0, -1]].tolist()
    elif method in ("eszsl", "izf"):
        told = lw.teach(classifier, "told", vector=known.vectors[0].tolist())
        answers["told"] = told.scores(images).log_odds[:, [0, -1]].tolist()
    elif method == "zero_label":
        doubt = uncertain_clusters(classifier)[0]
        swapped = name_clusters(classifier, {doubt.cluster: doubt.others[0][0] if doubt.others else doubt.label})
        answers["renamed"] = swapped.origin.summary["answers"]
    said[method] = answers
assert not any(name.partition(".")[0] == "torch" and sys.modules[name] is not None for name in sys.modules)
print(json.dumps(said))
"""


def test_saved_classifiers_answer_without_torch(tmp_path: Path) -> None:
    split = blobs(6).split("test")
    images = px(split)[::5][:12].numpy()
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "targets.npy", np.asarray(split.targets)[::5][:12])
    for method in METHODS:
        save(trained(method), tmp_path / method)
    words = [sys.executable, "-c", ANSWERS, str(tmp_path), *METHODS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "LABELWISE_CACHE": "off"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    for method in METHODS:
        classifier, answers = trained(method), said[method]
        wanted = classifier.scores(images).log_odds
        scale = max(1.0, float(abs(wanted).max()))
        np.testing.assert_allclose(answers["log_odds"], wanted, atol=1e-3 * scale, err_msg=method)
        np.testing.assert_allclose(answers["others"], answers["log_odds"], atol=1e-5 * scale, err_msg=method)
        taught = lw.teach(classifier, "new", examples=images[:5]).scores(images).log_odds[:, -1]
        np.testing.assert_allclose(answers["taught"], taught, atol=1e-3 * scale, err_msg=method)
        assert answers["heat"] == pytest.approx(1.0)
    assert said["zero_label"]["renamed"]
