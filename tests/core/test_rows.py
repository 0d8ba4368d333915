"""Rows added one after another are those of ``torch.cat``, whoever else adds some to the same tensor."""

import copy
import pickle
import threading

import torch

from labelwise.core.rows import LEAST, append_rows, drop_rows


def test_as_cat_in_any_order() -> None:
    draw = torch.Generator().manual_seed(0)
    first = torch.rand(LEAST, 2)
    known = [(first, first.clone())]
    for _ in range(400):
        place = int(torch.randint(0, len(known), (1,), generator=draw)) if torch.rand(1, generator=draw) < 0.3 else -1
        tensor, slow = known[place]
        rows = torch.rand(int(torch.randint(0, 4, (1,), generator=draw)), 2, generator=draw)
        known.append((append_rows(tensor, rows), torch.cat([slow, rows])))
        if torch.rand(1, generator=draw) < 0.2:
            begin, end = sorted(torch.randint(0, len(slow) + 1, (2,), generator=draw).tolist())
            end = min(end, begin + 5)
            known.append((drop_rows(tensor, begin, end), torch.cat([slow[:begin], slow[end:]])))
    assert all(torch.equal(fast, slow) for fast, slow in known), "nobody's rows were written over"


def test_most_rows_are_copied_a_few_times_only() -> None:
    tensor, places = torch.zeros(LEAST), set()
    for i in range(5_000):
        tensor = append_rows(tensor, torch.tensor([float(i)]))
        places.add(tensor.data_ptr())
    assert len(places) < 15
    assert tensor[LEAST:].tolist() == list(range(5_000))


def test_rows_added_after_some_were_dropped_are_not_copied() -> None:
    tensor = drop_rows(torch.arange(2.0 * LEAST), 3, 5)
    longer = append_rows(tensor, torch.ones(1))
    assert longer.data_ptr() == tensor.data_ptr()
    assert torch.equal(longer, torch.cat([tensor, torch.ones(1)]))


def test_kinds_follow_the_first() -> None:
    assert append_rows(torch.zeros(LEAST, dtype=torch.bool), torch.ones(1)).dtype == torch.bool
    weights = torch.zeros(LEAST, requires_grad=True)
    assert append_rows(weights, torch.ones(1)).requires_grad


def test_copies_have_no_room() -> None:
    tensor = append_rows(torch.zeros(LEAST), torch.ones(1))
    for twin in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert torch.equal(append_rows(twin, torch.ones(1)), append_rows(tensor, torch.ones(1)))


def test_threads_never_share_a_row() -> None:
    shared = append_rows(torch.zeros(LEAST), torch.zeros(1))
    results: dict[int, torch.Tensor] = {}

    def add(i: int) -> None:
        mine = shared
        for _ in range(200):
            mine = append_rows(mine, torch.tensor([float(i)]))
        results[i] = mine

    threads = [threading.Thread(target=add, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, tensor in results.items():
        assert tensor[LEAST + 1 :].tolist() == [float(i)] * 200
