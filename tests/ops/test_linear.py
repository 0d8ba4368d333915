import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor

from labelwise.ops.linear import CodeStatistics, code_statistics, linear_scores, solve_label_codes


def clusters(k: int, per: int, d: int = 5, seed: int = 0, spread: float = 2.0) -> tuple[Tensor, Tensor]:
    made = torch.Generator().manual_seed(seed)
    means = torch.randn(k, d, generator=made) * spread
    targets = torch.arange(k).repeat_interleave(per)
    return means[targets] + torch.randn(k * per, d, generator=made), targets


def discriminant(codes: Tensor, targets: Tensor) -> Tensor:
    """Label codes of scikit-learn's linear discriminant analysis."""
    fitted = LinearDiscriminantAnalysis(solver="lsqr", priors=[1 / 4] * 4).fit(codes.numpy(), targets.numpy())
    return torch.cat([torch.as_tensor(fitted.coef_), torch.as_tensor(fitted.intercept_)[:, None]], 1).float()


def solve_label_code(examples: Tensor, known: CodeStatistics, codes: Tensor, *, ridge: float = 1.0) -> Tensor:
    """The code of one label."""
    groups = torch.zeros(len(examples), dtype=torch.int64)
    return solve_label_codes(examples, groups, known, codes, ridge=ridge)[0]


@pytest.mark.parametrize("several", [False, True])
def test_labels_are_solved_each_on_its_own(several: bool) -> None:
    codes, targets = clusters(k=3, per=40)
    truths = torch.nn.functional.one_hot(targets, 3).bool()
    known = code_statistics(codes, truths if several else targets, 3)
    trained, groups = torch.randn(3, 6), torch.arange(12) % 3
    found = solve_label_codes(codes[:12], groups, known, trained)
    for group in range(3):
        torch.testing.assert_close(found[group], solve_label_code(codes[:12][groups == group], known, trained))


def test_linear_scores_is_weights_and_bias() -> None:
    codes, labels = torch.randn(7, 4), torch.randn(3, 5)
    expected = torch.tensor([[float(c @ label[:-1] + label[-1]) for label in labels] for c in codes])
    torch.testing.assert_close(linear_scores(codes, labels), expected)


def test_statistics_equal_a_loop_over_labels() -> None:
    codes, targets = clusters(k=3, per=40)
    codes, targets = codes[30:], targets[30:]  # unequal labels weigh the same
    found = code_statistics(codes, targets, 3)
    parts = [codes[targets == c].double() for c in range(3)]
    torch.testing.assert_close(found.means, torch.stack([part.mean(0) for part in parts]))
    covariances = torch.stack([torch.cov(part.T, correction=0) for part in parts])
    torch.testing.assert_close(found.within, covariances.mean(0))
    assert found.counts.tolist() == [10, 40, 40]


def test_absent_label_does_not_matter() -> None:
    codes, targets = clusters(k=3, per=40)
    few, wide = code_statistics(codes, targets, 3), code_statistics(codes, targets, 9)
    torch.testing.assert_close(few.within, wide.within)
    trained = torch.randn(3, 6)
    padded = torch.cat([trained, torch.full((6, 6), 100.0)])
    torch.testing.assert_close(solve_label_code(codes[:5], wide, padded), solve_label_code(codes[:5], few, trained))


def test_with_many_examples_it_is_discriminant_analysis() -> None:
    """Where trained codes are those of LDA, a label taught from many examples gets the code LDA would give it."""
    codes, targets = clusters(k=4, per=4000)
    every = discriminant(codes, targets)
    known = code_statistics(codes[targets < 3], targets[targets < 3], 3)
    code = solve_label_code(codes[targets == 3], known, every[:3], ridge=1e-6)
    scores = linear_scores(codes, torch.cat([every[:3], code[None]]))
    agree = scores.argmax(1) == linear_scores(codes, every).argmax(1)
    assert float(agree.double().mean()) > 0.99


@pytest.mark.parametrize("examples", [1, 5])
def test_few_examples_are_enough_and_do_not_take_over(examples: int) -> None:
    d, hits, kept = 40, [], []
    for seed in range(8):
        codes, targets = clusters(k=4, per=400, d=d, seed=seed, spread=1.2)
        train = torch.arange(len(codes)) % 2 == 0
        old, new = train & (targets < 3), targets == 3
        known = code_statistics(codes[old], targets[old], 3)
        every = discriminant(codes[train], targets[train])[:3]
        code = solve_label_code(codes[new & train][:examples], known, every)
        both = torch.cat([every, code[None]])
        right = linear_scores(codes[~train], both).argmax(1) == targets[~train]
        hits.append(right[targets[~train] == 3].double().mean())
        kept.append(right[targets[~train] < 3].double().mean())
    assert float(torch.stack(hits).mean()) > 0.85
    assert float(torch.stack(kept).mean()) > 0.85


def test_statistics_of_several_labels_equal_a_loop_over_labels() -> None:
    codes, targets = clusters(k=3, per=40)
    truths = torch.rand(120, 4, generator=torch.Generator().manual_seed(1)) < 0.4
    truths[:7], truths[:, 3] = False, False  # images without a label, a label without images
    found = code_statistics(codes, truths, 4)
    parts = [codes[truths[:, label]].double() for label in range(3)]
    torch.testing.assert_close(found.means[:3], torch.stack([part.mean(0) for part in parts]))
    x = codes.double()
    centred = x - x.mean(0)
    torch.testing.assert_close(found.within, centred.T @ centred / len(x))
    torch.testing.assert_close(found.background, x.mean(0))
    assert found.counts.tolist() == [*(len(part) for part in parts), 0]
    assert code_statistics(codes, targets, 3).background is None


def test_a_label_that_others_do_not_exclude_is_told_from_all_images() -> None:
    """Three directions, each switched on or not: the third is taught to a model that knows two."""
    made = torch.Generator().manual_seed(0)
    truths = torch.rand(3000, 3, generator=made) < 0.4
    codes = 3 * truths.float() @ torch.eye(3, 6) + torch.randn(3000, 6, generator=made)
    known = code_statistics(codes, truths[:, :2], 2)
    logits = [[*(6 * torch.eye(6)[label]).tolist(), -9.0] for label in range(2)]
    trained = torch.tensor(logits)
    for examples in (5, 500):
        code = solve_label_code(codes[truths[:, 2]][:examples], known, trained)
        scores = linear_scores(codes, code[None])[:, 0]
        order = (scores[truths[:, 2]][:, None] > scores[~truths[:, 2]]).double().mean()
        assert float(order) > (0.75 if examples == 5 else 0.95)
        assert (
            float((scores > 0)[truths[:, 2]].double().mean()) > float((scores > 0)[~truths[:, 2]].double().mean()) + 0.3
        )
