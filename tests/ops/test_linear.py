import torch
from sklearn.linear_model import Ridge

from labelwise.ops.linear import code_moments, linear_scores, solve_label_code, with_one


def clusters(k: int = 3, per: int = 40, d: int = 5, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    means = torch.randn(k, d, generator=made) * 3
    targets = torch.arange(k).repeat_interleave(per)
    return means[targets] + torch.randn(k * per, d, generator=made), targets


def test_linear_scores_is_weights_and_bias() -> None:
    codes, labels = torch.randn(7, 4), torch.randn(3, 5)
    expected = torch.tensor([[float(c @ label[:-1] + label[-1]) for label in labels] for c in codes])
    torch.testing.assert_close(linear_scores(codes, labels), expected)


def test_moments_equal_a_loop_over_classes() -> None:
    codes, targets = clusters(k=3)
    keep = torch.ones(len(codes), dtype=torch.bool)
    keep[:30] = False  # unequal classes weigh the same
    codes, targets = codes[keep], targets[keep]
    moment, within = code_moments(codes, targets, 3)
    parts = [codes[targets == c].double() for c in range(3)]
    expected = sum(with_one(p).T @ with_one(p) / len(p) for p in parts) / 3
    inside = sum((p - p.mean(0)).T @ (p - p.mean(0)) / len(p) for p in parts) / 3
    torch.testing.assert_close(moment, torch.as_tensor(expected))
    torch.testing.assert_close(within, torch.as_tensor(inside))


def test_absent_class_does_not_matter() -> None:
    codes, targets = clusters(k=3)
    few, wide = code_moments(codes, targets, 3), code_moments(codes, targets, 9)
    torch.testing.assert_close(few[0], wide[0])
    torch.testing.assert_close(few[1], wide[1])


def test_solution_is_ridge_regression_on_both_sides() -> None:
    """With the spread of the examples themselves, the direction is that of weighted ridge regression."""
    codes, targets = clusters(k=3, per=50)
    new = torch.randn(400, 5, generator=torch.Generator().manual_seed(4)) + torch.tensor([4.0, -4, 0, 0, 2])
    moment, _ = code_moments(codes, targets, 3)
    spread = torch.cov(new.T.double(), correction=0)
    code = solve_label_code(new, moment, spread, (5.0, -5.0), ridge=0.05)
    x = torch.cat([codes, new]).double()
    y = torch.cat([-5 * torch.ones(len(codes)), 5 * torch.ones(len(new))]).double()
    weight = torch.cat([torch.full((len(codes),), 1 / len(codes)), torch.full((len(new),), 1 / len(new))]).double()
    penalty = 0.05 * float(spread.diagonal().mean())
    reference = torch.as_tensor(Ridge(alpha=penalty).fit(x, y, sample_weight=weight).coef_)
    cosine = torch.nn.functional.cosine_similarity(code[:-1].double(), reference, dim=0)
    assert float(cosine) > 0.999999


def test_levels_are_met_and_classes_told_apart() -> None:
    codes, targets = clusters(k=3)
    moment, within = code_moments(codes, targets, 3)
    centre = torch.tensor([5.0, 5, -5, 5, 0])
    new = centre + torch.randn(60, 5, generator=torch.Generator().manual_seed(9))
    code = solve_label_code(new[:5], moment, within, (4.0, -6.0))
    scores = linear_scores(torch.cat([new[5:], codes]), code[None])[:, 0]
    assert (
        float(linear_scores(new[:5].mean(0, keepdim=True), code[None])) == 4.0
        or abs(float(linear_scores(new[:5].mean(0, keepdim=True), code[None])) - 4.0) < 1e-3
    )
    assert abs(float(scores[55:].mean()) + 6.0) < 1e-2
    assert float((scores[:55, None] > scores[None, 55:]).float().mean()) > 0.99
