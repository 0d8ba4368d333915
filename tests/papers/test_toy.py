from typing import get_args

import numpy as np
import pytest
import torch

from labelwise.support.errors import UsageError
from labelwise_papers.toy import CENTRES, SPREAD, Kind, ToyResult, draw_toy, run_toy, seen_batch


@pytest.fixture(scope="module")
def flow() -> ToyResult:
    return run_toy("flow", 0, steps=250)


def test_data_lie_around_the_seen_centres_alone() -> None:
    torch.manual_seed(0)
    v, targets = seen_batch()
    assert targets.bincount().tolist() == [128] * 3
    noise = v - CENTRES[targets]
    assert float(noise.std()) == pytest.approx(SPREAD, rel=0.1)
    assert noise.abs().max() < 6 * SPREAD


def test_the_flow_nears_the_unseen_label_and_learns_the_seen_ones(flow: ToyResult) -> None:
    untrained = run_toy("flow", 0, steps=0)
    assert untrained.unseen_error > 1.0
    assert untrained.seen_error > 1.0
    assert flow.unseen_error < 0.5
    assert flow.seen_error < 0.1


def test_errors_are_distances_of_the_means_of_points(flow: ToyResult) -> None:
    assert flow.points.shape == (4, 1000, 2)
    means = flow.points.mean(1)
    assert torch.equal(flow.centres, means)
    assert flow.unseen_error == pytest.approx(float(((means[3] - 1) ** 2).sum().sqrt()), rel=1e-5)
    errors = [float(((means[i] - CENTRES[i]) ** 2).sum().sqrt()) for i in range(3)]
    assert flow.seen_error == pytest.approx(max(errors), rel=1e-5)


def test_generated_vectors_spread_like_real_ones(flow: ToyResult) -> None:
    assert flow.points[:3].std(1).numpy() == pytest.approx(SPREAD, rel=0.3)


def test_a_unit_variance_leaves_no_room_for_the_unseen_label() -> None:
    assert run_toy("flow_unit_variance", 0, steps=250).unseen_error > 1.0


def test_the_autoencoder_learns_the_seen_labels() -> None:
    assert run_toy("vae", 0, steps=0).seen_error > 0.5
    assert run_toy("vae", 0, steps=200).seen_error < 0.15


@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind != "flow_unit_variance"])
def test_the_seed_decides(kind: str) -> None:
    before = torch.random.get_rng_state()
    first, second, other = (run_toy(kind, seed, steps=3) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert torch.equal(first.points, second.points)
    assert not torch.equal(first.points, other.points)
    assert first.points.isfinite().all()
    assert torch.equal(torch.random.get_rng_state(), before)


def test_mmd_and_centres_change_what_is_learnt(flow: ToyResult) -> None:
    kinds = ("flow", "flow_recipe_mmd", "flow_without_mmd", "flow_positive_mmd", "flow_without_centres")
    points = [run_toy(kind, 1, steps=5).points for kind in kinds]  # type: ignore[arg-type]
    assert all(not torch.equal(a, b) for i, a in enumerate(points) for b in points[:i])


def test_the_figure_has_a_panel_for_the_data_and_for_each_result(flow: ToyResult) -> None:
    figure = draw_toy([flow, flow, flow])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["data", *[f"flow\nunseen {flow.unseen_error:.2f} off"] * 3]
    far = ToyResult("vae", flow.points + torch.tensor([1.0, -9.0]) - flow.centres[3])
    assert draw_toy([far]).axes[1].get_title() == "vae\nunseen 10.00 off, out of view"
    drawn = [np.shape(each.get_offsets())[0] for each in figure.axes[1].collections]
    assert drawn == [300, 300, 300, 300, 4]


def test_wrong_requests_say_what_is_wrong() -> None:
    with pytest.raises(UsageError, match=r'No toy "flows"\. Did you mean "flow"\?'):
        run_toy("flows", 0)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="-1 steps"):
        run_toy("flow", 0, steps=-1)
