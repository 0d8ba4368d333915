"""What padding costs: training steps of the sentence encoder without it and with it, in one run.

    python benchmarks/sentences.py [--device cpu|cuda] [--rounds 5] [--threads N] [--quick] [--json FILE]

A step takes 32 images with ten sentences each: lookup of the words, forward, backward and one step of SGD, in bf16 on a
GPU. The padded network is built of torch's own layers on sentences of 30 words, once as the authors of CLAREL call it
(ten calls, one for each sentence of the images) and once on all 320 sentences in one call. Sentences are the captions
in $LABELWISE_DATA if they are there, else random words in sentences of 5 to 30. The three ways take turns, and the
median step counts.
"""

import argparse
import gzip
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

from labelwise.images.describe.words import packaged_vectors
from labelwise.methods.clarel.caption_retrieval import retrieval_loss
from labelwise.methods.clarel.text import SentenceEncoder
from labelwise.methods.clarel.tokens import Instance, Tokens, tokenise, word_table
from labelwise.train.tensors import segment_mean

IMAGES, SENTENCES, LONGEST = 32, 10, 30
CAPTIONS = "cub_captions_reed_55classes.json.gz"


class PaddedBlock(nn.Module):
    """The same block on ``[n, c, t]``."""

    def __init__(self, size_in: int, size_out: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for size in (size_in, size_out, size_out):
            layers += [nn.Conv1d(size, size_out, 3, padding=1, bias=False), nn.BatchNorm1d(size_out), nn.ReLU()]
        self.inner = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Conv1d(size_in, size_out, 1)
        self.pool = nn.MaxPool1d(2, ceil_mode=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return half as many columns."""
        return self.pool((self.inner(x) + self.shortcut(x)).relu())  # type: ignore[no-any-return]


class PaddedEncoder(nn.Module):
    """The same encoder on padded sentences ``[n, 30, a]``; only the mean over time leaves padding out."""

    def __init__(self, vector_size: int, filters: tuple[int, int], hidden: int, code_size: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(PaddedBlock(vector_size, filters[0]), PaddedBlock(*filters))
        self.lstm = nn.LSTM(filters[1], hidden, bidirectional=True, batch_first=True)
        self.finish = nn.Sequential(nn.Dropout(0.25), nn.Linear(2 * hidden, code_size))

    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Return sentence codes ``[n, e]``."""
        states = self.lstm(self.blocks(words.mT).mT)[0]
        left = (lengths + 3) // 4
        real = torch.arange(states.shape[1], device=words.device) < left[:, None]
        return self.finish((states * real[:, :, None]).sum(1) / left[:, None])  # type: ignore[no-any-return]


def sentences(vectors_at_hand: int) -> tuple[list[Instance], str]:
    """Return ten sentences for each of many images, and what they are."""
    path = Path(os.environ.get("LABELWISE_DATA", "")) / CAPTIONS
    if "LABELWISE_DATA" in os.environ and path.exists():
        texts = [each for each in json.loads(gzip.decompress(path.read_bytes())).values() if len(each) == SENTENCES]
        return tokenise(texts, packaged_vectors(), LONGEST), "captions"
    made = torch.Generator().manual_seed(0)
    n = 500 * SENTENCES
    lengths = (torch.randn(n, generator=made) * 4 + 14.5).round().long().clamp(5, LONGEST)
    flat = torch.randint(vectors_at_hand, (int(lengths.sum()),), generator=made)
    every = flat.split(lengths.tolist())  # type: ignore[no-untyped-call]
    return [every[i : i + SENTENCES] for i in range(0, n, SENTENCES)], "random words"


def steps(
    instances: list[Instance], table: Tensor, device: str, sizes: tuple[tuple[int, int], int, int]
) -> dict[str, Callable[[], None]]:
    """Return one training step of each way, by name."""
    torch.manual_seed(0)
    filters, hidden, code_size = sizes
    table = table.to(device)
    image_codes = torch.randn(IMAGES, code_size, device=device)
    flat = SentenceEncoder(table.shape[1], code_size, filters=filters, hidden=hidden).to(device)
    padded = PaddedEncoder(table.shape[1], filters, hidden, code_size).to(device)
    words, counts, _ = map(torch.from_numpy, Tokens.of(instances))
    columns = torch.arange(LONGEST)
    starts = counts.cumsum(0) - counts
    places = (starts[:, None] + columns).clamp(max=len(words) - 1)
    grid = words[places].where(columns < counts[:, None], 0).view(-1, SENTENCES, LONGEST).to(device)
    lengths = counts.view(-1, SENTENCES).to(device)

    def without(rows: Tensor) -> Tensor:
        some, sizes_of, groups = map(torch.from_numpy, Tokens.of([instances[row] for row in rows.tolist()]))
        codes = flat(table[some.to(device, non_blocking=True)], sizes_of)
        return segment_mean(codes, groups.to(device, non_blocking=True), IMAGES)

    def one_call(rows: Tensor) -> Tensor:
        at = rows.to(device)
        codes = padded(table[grid[at].flatten(0, 1)], lengths[at].flatten())
        return codes.float().unflatten(0, (IMAGES, SENTENCES)).mean(1)  # type: ignore[no-any-return]

    def ten_calls(rows: Tensor) -> Tensor:
        at = rows.to(device)
        codes = [padded(table[grid[at, i]], lengths[at, i]).float() for i in range(SENTENCES)]
        return torch.stack(codes).mean(0)

    def step(model: nn.Module, encode: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

        def run() -> None:
            rows = torch.randint(len(instances), (IMAGES,))
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                text, image = retrieval_loss(image_codes, encode(rows), 0.5)
            optimizer.zero_grad(set_to_none=True)
            (text + image).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

        return run

    return {
        "without padding": step(flat, without),
        "padded, ten calls": step(padded, ten_calls),
        "padded, one call": step(padded, one_call),
    }


def seconds_of(step: Callable[[], None], times: int, device: str) -> list[float]:
    """Return the seconds of each of so many steps."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--quick", action="store_true", help="a small network and few steps, to see that it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    table = torch.from_numpy(word_table(packaged_vectors()))
    instances, kind = sentences(len(table))
    sizes = ((16, 32), 32, 64) if options.quick else ((128, 256), 512, 1024)
    ways = steps(instances, table, options.device, sizes)
    rounds = 1 if options.quick else options.rounds
    times = 20 if options.device == "cuda" else 2
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, step in ways.items():
            found = seconds_of(step, times, options.device)
            seconds[name] += found if number else []  # the first round warms up
    print(
        f"{options.device}, torch {torch.__version__}, {options.threads} threads, {IMAGES} images x {SENTENCES} sentences "
        f"({kind}, mean {Tokens.of(instances).lengths.mean():.1f} words), median of {rounds * times} steps"
    )
    ours = median(seconds["without padding"])
    for name, values in seconds.items():
        print(f"{name:20}{1000 * median(values):10.1f} ms a step{median(values) / ours:8.2f} x")
    if options.json:
        medians = {name: median(values) for name, values in seconds.items()}
        options.json.write_text(
            json.dumps({"device": options.device, "sentences": kind, "seconds": medians}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()
