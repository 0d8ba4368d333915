"""The golden files: how they are written, read, and compared with what the product answers today."""

import json
import re
from pathlib import Path
from typing import Any

from tests.golden.outside import HERE

FOLDER = HERE / "expected"
NEAR = 1e-5
WIDTH = 118
DECIMAL = re.compile(r"\d+\.\d+")
WORDS = ("printed", "notes")  # lines for people: numbers in them are rounded

# Keys that an answer may have beyond those of the golden file, for each kind of case and verb; all others fail.
ADDED: dict[str, frozenset[str]] = {
    "verb/evaluate": frozenset(),
    "verb/report": frozenset({"thresholds"}),  # the table is pinned down in verb/evaluate
    "verb/attack": frozenset(),
    "verb/analyse": frozenset(),
}

# Keys that any answer may have beyond: the kind of an outlier rule, of how many clusters a name may be, the parents of an answer, and
# whether a model can promise how often it is right.
NEW = frozenset({"nearest", "sign_weights", "parts", "parents", "promise"})

# Where 1e-5 is too much to ask, by where a number stands, and why. Measured with other instruction sets (ATEN_CPU_CAPABILITY,
# ONEDNN_MAX_CPU_ISA, MKL_CBWR) and two threads; everything else stays within 1e-5 there.
LOOSER: tuple[tuple[str, float], ...] = (
    # One minus a cosine near one, divided by how little that varies: what single precision loses there shows.
    (r"outlier", 2e-4),
    # Logistic fits of pairs whose similarities lie close together: scale and offset are large and move together.
    (r"(verifier|rule) > (scale|offset)", 1e-3),
    # Of scores that say nothing (a network of width 1 after three epochs): any large temperature is as good.
    (r"temperature", 1e-3),
    # A layer trained on generated features, by many small steps that multiply what differs in the last digit.
    (r"^(api|fit)/(cgan|flow) ", 2e-2),
    # Differences of squared distances: in single precision, the last digit of a score of -28 shows in one of 0.3.
    (r"/(zero_label|named|name) .*(raw scores|log-odds)", 1e-4),
    # Scores say so little of these eight images that the fitted scale is 1.6e-5: probabilities move in steps of 0.005.
    (r"^api/hard > calibrate > classify", 5e-3),
    # A regression by SGD, which ends after 23 rounds or 27: noise of 3e-7 in the embeddings moves one image of 24.
    (r"^verb/analyse .* > probe ", 5e-2),
    # Weights of batches of twelve images, contrasted with each other: many small steps, too.
    (r"^verb/pretrain > tensors", 2e-4),
    # The service rounds heat maps to four digits, and the last one may turn.
    (r"^route/.* > heat", 1.01e-4),
)


def path_of(case: str) -> Path:
    """Return where the golden file of a case is."""
    return FOLDER / f"{case}.json"


def read(case: str) -> Any:
    """Return what a case must give; an error where there is no golden file."""
    file = path_of(case)
    if not file.exists():
        raise FileNotFoundError(f"There is no golden file {file.relative_to(HERE)}; write it with tests.golden.make.")
    return json.loads(file.read_text(encoding="utf-8"))


def write(case: str, document: Any) -> None:
    """Write what a case gives as its golden file."""
    file = path_of(case)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(shown(document) + "\n", encoding="utf-8")


def shown(value: Any, indent: int = 0) -> str:
    """Return JSON that people can read and compare: what fits into a line is one line."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= WIDTH or not value or not isinstance(value, dict | list):
        return line
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {shown(each, indent + 1)}" for key, each in value.items()]
        return "{" + inner + f",{inner}".join(parts) + "\n" + " " * indent + "}"
    if all(isinstance(each, int | float | None) for each in value):
        return "[" + inner + inner.join(_rows(value)) + "\n" + " " * indent + "]"
    parts = [shown(each, indent + 1) for each in value]
    return "[" + inner + f",{inner}".join(parts) + "\n" + " " * indent + "]"


def _rows(numbers: list[Any]) -> list[str]:
    """Return numbers in lines of eight."""
    parts = [json.dumps(numbers[start : start + 8])[1:-1] for start in range(0, len(numbers), 8)]
    return [f"{part}," for part in parts[:-1]] + parts[-1:]


def differences(case: str, wanted: Any, found: Any) -> list[str]:
    """Return how an answer differs from its golden file, one line each; none where it does not."""
    answer = json.loads(json.dumps(found, ensure_ascii=False))
    return _compared(wanted, answer, f"{case} ", ADDED.get(case, frozenset()) | NEW)


def renewed(case: str, found: Any) -> Any:
    """Return an answer as its golden file is to hold it: what is near enough to the file of today stays as it stands there."""
    answer = json.loads(json.dumps(found, ensure_ascii=False))
    return _renewed(read(case), answer, f"{case} ") if path_of(case).exists() else answer


def _renewed(wanted: Any, found: Any, where: str, key: str = "") -> Any:
    if isinstance(wanted, dict) and isinstance(found, dict):
        open_keys = (ADDED.get(where.split(" ")[0], frozenset()) | NEW) - wanted.keys()
        return {n: _renewed(wanted.get(n), found[n], f"{where}> {n} ", n) for n in found if n not in open_keys}
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            _renewed(one, other, f"{where}[{i}]", key) for i, (one, other) in enumerate(zip(wanted, found, strict=True))
        ]
    return found if _compared(wanted, found, where, frozenset(), key) else wanted


def _compared(wanted: Any, found: Any, where: str, added: frozenset[str], key: str = "") -> list[str]:
    if type(wanted) is not type(found):
        return [f"{where}: {_cut(wanted)} became {_cut(found)}"]
    if isinstance(wanted, dict):
        lost = [f'{where}: "{name}" is missing' for name in wanted if name not in found]
        known = {*wanted, *added}
        more = [f'{where}: "{name}" is new: {_cut(found[name])}' for name in found if name not in known]
        both = [name for name in wanted if name in found]
        return lost + more + [d for n in both for d in _compared(wanted[n], found[n], f"{where}> {n} ", added, n)]
    if isinstance(wanted, list):
        if len(wanted) != len(found):
            return [f"{where}: {len(wanted)} entries became {len(found)}: {_cut(wanted)} and {_cut(found)}"]
        pairs = enumerate(zip(wanted, found, strict=True))
        return [d for i, (one, other) in pairs for d in _compared(one, other, f"{where}[{i}]", added, key)]
    if isinstance(wanted, float):
        near = max((near for pattern, near in LOOSER if re.search(pattern, where)), default=NEAR)
        same = abs(wanted - found) <= near * (1 + abs(wanted)) or (wanted != wanted and found != found)
    else:
        same = _same_words(wanted, found) if key in WORDS and isinstance(wanted, str) else wanted == found
    return [] if same else [f"{where}: {_cut(wanted)} became {_cut(found)}"]


def _same_words(wanted: str, found: str) -> bool:
    """Return whether lines are the same, up to one in the last digit of numbers with a decimal point."""
    if DECIMAL.sub("#", wanted) != DECIMAL.sub("#", found):
        return False
    pairs = zip(DECIMAL.findall(wanted), DECIMAL.findall(found), strict=True)
    return all(abs(float(a) - float(b)) <= 1.01 * 10.0 ** -len(a.split(".")[1]) for a, b in pairs)


def _cut(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) < 160 else f"{text[:160]}..."
