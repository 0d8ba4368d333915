from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import conv1d
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

from labelwise.methods.clarel.text import ConvolutionBlock, SentenceEncoder, _pack
from labelwise.support.errors import UsageError

LENGTHS = torch.tensor([3, 1, 8, 5, 2, 30, 7, 1, 4])


def encoder(filters: tuple[int, ...] = (5, 7), dropout: float = 0.0) -> SentenceEncoder:
    """A small encoder in double precision whose batch norms have seen something."""
    torch.manual_seed(0)
    made = SentenceEncoder(4, 6, filters=filters, hidden=3, dropout=dropout).double()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm1d):
            for tensor in (module.weight, module.bias, module.running_mean, module.running_var):
                assert tensor is not None
                nn.init.uniform_(tensor, 0.5, 1.5)
    return made


def words(lengths: Tensor = LENGTHS) -> Tensor:
    return torch.randn(int(lengths.sum()), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def norm_over_all(norm: nn.Module, parts: list[Tensor]) -> list[Tensor]:
    """Batch norm of ``[1, c, t]`` parts: in training its statistics cover the rows of all parts."""
    joined = norm(torch.cat(parts, 2))
    return list(joined.split([part.shape[2] for part in parts], 2))


def slow_block(block: ConvolutionBlock, parts: list[Tensor]) -> list[Tensor]:
    inner = parts
    for number, (conv, norm) in enumerate(zip(block.convs, block.norms, strict=True)):
        weight = torch.stack(conv.get_parameter("weight").chunk(3, 1), 2)  # [o, c, 3]
        inner = norm_over_all(norm, [conv1d(p if number == 0 else p.relu(), weight, padding=1) for p in inner])
    weight, bias = block.shortcut.weight[:, :, None], block.shortcut.bias
    joined = [(i + conv1d(part, weight, bias)).relu() for i, part in zip(inner, parts, strict=True)]
    return [nn.MaxPool1d(2, ceil_mode=True)(part) for part in joined]


def slow(model: SentenceEncoder, x: Tensor, lengths: Tensor) -> Tensor:
    """Each sentence alone through torch's own layers, which share the weights."""
    parts = [part.T[None] for part in x.split(lengths.tolist())]  # type: ignore[no-untyped-call]
    for block in model.blocks:
        assert isinstance(block, ConvolutionBlock)
        parts = slow_block(block, parts)
    means = torch.stack([model.lstm(part[0].T)[0].mean(0) for part in parts])
    return model.project(model.dropout(means))  # type: ignore[no-any-return]


def gradients(model: SentenceEncoder, embeddings: Tensor, x: Tensor) -> tuple[Tensor, ...]:
    weights = torch.randn(embeddings.shape, dtype=embeddings.dtype, generator=torch.Generator().manual_seed(2))
    return torch.autograd.grad((embeddings * weights).sum(), (x, *model.parameters()))


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("filters", [(), (5,), (5, 7), (3, 4, 5)], ids=str)
def test_equals_each_sentence_alone(filters: tuple[int, ...], training: bool) -> None:
    ours, theirs = encoder(filters).train(training), encoder(filters).train(training)
    x = words().requires_grad_()
    found, expected = ours(x, LENGTHS), slow(theirs, x, LENGTHS)
    assert found.shape == (len(LENGTHS), 6)
    torch.testing.assert_close(found, expected)
    for left, right in zip(gradients(ours, found, x), gradients(theirs, expected, x), strict=True):
        torch.testing.assert_close(left, right)
    for name, value in ours.state_dict().items():
        torch.testing.assert_close(value, theirs.state_dict()[name], msg=name)


def test_other_sentences_do_not_matter() -> None:
    model, x = encoder().eval(), words()
    together = model(x, LENGTHS)
    parts = x.split(LENGTHS.tolist())  # type: ignore[no-untyped-call]
    for row, part in enumerate(parts):
        torch.testing.assert_close(model(part, LENGTHS[row : row + 1])[0], together[row])
    backwards = model(torch.cat(parts[::-1]), LENGTHS.flip(0))
    torch.testing.assert_close(backwards.flip(0), together)


def test_gradients_by_differences() -> None:
    lengths = torch.tensor([1, 3, 4])
    model = encoder((2, 3)).train()
    x = words(lengths).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: model(y, lengths), x)


def test_dropout_only_in_training() -> None:
    model, x = encoder(dropout=0.5), words()
    model.eval()
    torch.testing.assert_close(model(x, LENGTHS), model(x, LENGTHS))
    model.train()
    assert not torch.allclose(model(x, LENGTHS), model(x, LENGTHS))


def test_default_sizes() -> None:
    model = SentenceEncoder(50)
    assert model(torch.randn(5, 50), torch.tensor([2, 3])).shape == (2, 1024)
    assert [model.get_parameter(f"blocks.{i}.convs.2.weight").shape[0] for i in (0, 1)] == [128, 256]
    assert (model.lstm.hidden_size, model.dropout.p) == (512, 0.25)


@pytest.mark.parametrize(
    ("lengths", "rows"), [([2, 3], 6), ([5, 0], 5), ([], 0)], ids=["wrong sum", "empty sentence", "no sentence"]
)
def test_lengths_that_do_not_fit(lengths: list[int], rows: int) -> None:
    with pytest.raises(UsageError, match="at least one word"):
        encoder()(torch.randn(rows, 4, dtype=torch.float64), torch.tensor(lengths, dtype=torch.int64))


def test_sizes_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="at least 1"):
        SentenceEncoder(4, filters=(5, 0))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_the_same_on_a_gpu() -> None:
    model, x = encoder().eval(), words()
    expected = model(x, LENGTHS)
    torch.testing.assert_close(model.cuda()(x.cuda(), LENGTHS).cpu(), expected)
    torch.testing.assert_close(model(x.cuda(), LENGTHS.cuda()).cpu(), expected)


def run_in_half_precision(device: str) -> tuple[Tensor, dict[str, Any]]:
    model = encoder().float().to(device).train()
    with torch.autocast(device, torch.bfloat16):
        embeddings = model(words().float().to(device), LENGTHS)
    embeddings.float().square().sum().backward()
    return embeddings, {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.parametrize(
    "device",
    ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"))],
)
def test_half_precision(device: str) -> None:
    embeddings, grads = run_in_half_precision(device)
    expected = encoder().train()(words(), LENGTHS)
    torch.testing.assert_close(embeddings.double().cpu(), expected, atol=0.05, rtol=0.05)
    for name, grad in grads.items():
        assert grad is not None, name
        assert grad.isfinite().all(), name
        assert grad.dtype == torch.float32, name


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=12))
def test_sentences_are_packed_as_torch_packs_them(lengths: list[int]) -> None:
    rows = torch.randn(sum(lengths), 3, generator=torch.Generator().manual_seed(0))
    ours, theirs = (
        _pack(rows, torch.tensor(lengths)),
        pack_sequence(list(torch.split(rows, lengths)), enforce_sorted=False),
    )
    states = [pad_packed_sequence(packed)[0] for packed in (ours, theirs)]
    assert torch.equal(ours.batch_sizes, theirs.batch_sizes)
    assert torch.equal(states[0], states[1])
