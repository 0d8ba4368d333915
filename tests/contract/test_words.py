"""The words of what people read: strings, docstrings and the pages of the service and of reports are in plain English."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator

import pytest

from tests.contract.trees import ROOT, tree_of

# Words of translated prose, each with what to write.
PLAIN = {
    r"anew": "again",
    r"beside(?!``)": "next to, in addition to, compared with",
    r"(stays?|kept|left|taken) as (it is|they are)": "unchanged",
    r"(is|are) told (of|that|to)": "knows, is asked",
    r"be it": "whether",
    r"lies? (beside|in (the|a|an|it|his|their))\b": "is next to, is in",
    r"of (one|its|their)('s)? own word": "",
    r"minded|mended": "applied, fixed",
    r"(?<!there )(is|are) no (number|file|folder|address|image|label|shard|table|classifier|gallery)": "is not a",
    r"where there (is|are) none": "if there is none",
    r"so (many|much)(?! (that|as))": "this many, the number of",
    r"as (it|they) came": "original, unchanged",
    r"in place of": "instead of",
    r"(is|are) told (from|apart)": "is separated from",
    r"in vain": "without effect",
    r"all the same": "nevertheless",
    r"and the like": "and similar",
    r"stands? (in )?for": "represents, replaces",
    r"return (it|the same) (with|without)": "return a copy with",
    r"return what ``?\w+``? does": "call it, or say what it does",
    r"what (is|are|was|were) (said|told)": "the noun",
    r"(class|errors|stream|memory|process) of (its|their) own": "a separate one",
}
WORDS = re.compile(rf"\b({'|'.join(PLAIN)})\b", re.IGNORECASE)
ENDINGS = {".html", ".js"}


def texts() -> Iterator[tuple[str, str]]:
    """Yield each string and comment of the package, and each page, with its place."""
    for file in sorted((ROOT / "labelwise").rglob("*")):
        if file.suffix == ".py":
            for node in ast.walk(tree_of(file)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value
            for token in tokenize.generate_tokens(io.StringIO(file.read_text(encoding="utf-8")).readline):
                if token.type == tokenize.COMMENT:
                    yield f"{file.relative_to(ROOT)}:{token.start[0]}", token.string
        elif file.suffix in ENDINGS:
            yield str(file.relative_to(ROOT)), file.read_text(encoding="utf-8")


def test_what_people_read_is_plain_english() -> None:
    dialect = [f"{place}: {found[0]}" for place, text in texts() for found in WORDS.finditer(text)]
    assert not dialect, "\n".join(dialect)


@pytest.mark.parametrize(
    "text",
    [
        "The file lies beside it.",
        "Begin anew.",
        "it is no file",
        "which is minded",
        "so many images",
        "Return it with a row.",
    ],
)
def test_dialect_is_found(text: str) -> None:
    assert WORDS.search(text)
