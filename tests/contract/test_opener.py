"""Files that a user can name are opened in one way: ``support.regular``, which refuses what is no file or too large.

Calls that open a file to read it are found by their names. What they are given must come from the opener: ``regular_path(...)``, a
stream called ``stream`` or ``raw``, or bytes in memory. ``OWN`` lists files that no user names.
"""

import ast
from collections.abc import Iterator

from tests.contract.trees import ROOT, files, tree_of

OPENER = "labelwise/support/files.py"
METHODS = frozenset(("open", "read_bytes", "read_text"))  # of a path; the first is of archives and Pillow, too
READERS = frozenset(
    (
        "open", "np.load", "np.fromfile", "np.memmap", "np.loadtxt", "np.genfromtxt", "Image.open", "gzip.open", "bz2.open",
        "lzma.open", "zipfile.ZipFile", "ZipFile", "zipfile.is_zipfile", "tarfile.open", "safe_open", "load_file", "torch.load",
        "loadmat", "scipy.io.loadmat", "pickle.load", "parquet.ParquetFile", "parquet.read_table", "json.load", "tomllib.load",
        "mmap.mmap", "av.open", "io.open", "io.FileIO", "io.open_code",
    )
)  # fmt: skip
LAST = METHODS | {name.rpartition(".")[2] for name in READERS}
GIVEN = ("regular_path(", "open_regular(", "io.BytesIO(", "BytesIO(")
STREAMS = frozenset(("stream", "raw"))  # what the opener returns is called so
ARCHIVES = frozenset(("archive", "packed"))  # members of an archive that was opened are no files
OWN = {
    "labelwise/reporting/pages.py": ("(TEMPLATES / name).read_text",),
    "labelwise/core/export_folder.py": ("files('labelwise.core').joinpath",),  # files of the package
    "labelwise/core/standalone/classify.py": (
        "Image.open(file)",
        "(HERE / 'labels.json').read_text",
    ),  # runs without labelwise
    "labelwise/encoders/registry.py": ("CARDS.read_text",),  # a file of the package
    "labelwise_papers/published/__init__.py": ("file.read_text",),  # likewise
    "labelwise/encoders/download.py": ("import_module('fsspec').open",),  # an address that the user gave
    "labelwise/support/plugins.py": ("Path(file).read_text",),  # a module of the package
    "labelwise/images/decode/workers.py": ("Path('/proc/self/statm').read_text",),
    "labelwise/images/sources/paths.py": ("import_module('fsspec').open",),  # an address in a store
    "labelwise/images/sources/tar_files.py": ("tarfile.open(fileobj=_Headers(file)",),  # of ``open_shard``
    "labelwise/jobs/on_ray.py": ("job.open(1)",),  # a classifier
    "labelwise/jobs/local.py": ("job.open(threads)",),
    "labelwise/train/pixels.py": ("np.memmap(file, np.uint8, 'r+'",),  # a temporary file
}


def other_ways(tree: ast.AST) -> Iterator[str]:
    """Yield the calls that open a file to read it in another way."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _last(node.func) not in LAST or _writes(node):
            continue
        name, text = ast.unparse(node.func), ast.unparse(node)
        if "__file__" in text:  # beside a module
            continue
        first = ast.unparse(node.args[0]) if node.args else ""
        if name in READERS:
            if not (first.startswith(GIVEN) or first in STREAMS):
                yield text
        elif isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
            home = ast.unparse(node.func.value)
            writes = home == "os" and ("O_CREAT" in text or "O_DIRECTORY" in text)
            if home not in ARCHIVES and not writes:
                yield text


def _last(function: ast.expr) -> str:
    """Return the last name of what is called."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _writes(call: ast.Call) -> bool:
    """Return whether a file is opened to be written, by its mode."""
    words = [
        each.value for each in (*call.args, *(word.value for word in call.keywords)) if isinstance(each, ast.Constant)
    ]
    return any(
        isinstance(word, str) and word in ("w", "wb", "a", "ab", "x", "xb", "r+b", "w+b") for word in words
    ) or any(isinstance(each, ast.IfExp) for each in call.args)


def test_files_are_opened_in_one_way() -> None:
    unknown, used = [], set()
    for file in files():
        name = file.relative_to(ROOT).as_posix()
        if name == OPENER:
            continue
        for call in other_ways(tree_of(file)):
            own = [each for each in OWN.get(name, ()) if call.startswith(each)]
            used |= {(name, each) for each in own}
            unknown += [] if own else [f"{name}: {call}"]
    assert not unknown, "open it with support.regular"
    assert used == {(name, each) for name, every in OWN.items() for each in every}, "no longer there"


def test_other_ways_are_found() -> None:
    """Or the test above could pass because it finds nothing."""
    ways = (
        "open(path)", "path.open('rb')", "path.read_text()", "np.load(path)", "Image.open(path)", "zipfile.ZipFile(path)", "safe_open(path)",
        "json.load(path.open())", "parquet.ParquetFile(path)",
    )  # fmt: skip
    for way in ways:
        assert list(other_ways(ast.parse(way))), way
    for way in (
        "path.open('wb')",
        "np.load(regular_path(path))",
        "Image.open(stream)",
        "archive.open('x')",
        "read_regular(path)",
    ):
        assert not list(other_ways(ast.parse(way))), way
