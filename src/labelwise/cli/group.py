"""The verb group: sort unlabelled images into folders of look-alikes."""

import shlex
from pathlib import Path
from typing import Annotated, Any

from typer import Option

import labelwise as lw
from labelwise.cli.options import Paths, shared_options
from labelwise.cli.output import one_line, plain_table, show, styled
from labelwise.cli.sorting import Sorter, check_sorted
from labelwise.support.errors import UsageError, listing
from labelwise.support.file_names import GROUPS, numbered, read_record
from labelwise.support.writable import check_writable, write_file

PAGE = "index.html"
OUT_HELP = "The folder to write: one subfolder per group."


def group(
    paths: Paths,
    out_folder: Annotated[Path, Option("--out", help=OUT_HELP)],
    count: Annotated[int | None, Option(min=1, help="How many groups; chosen by default.")] = None,
    link: Annotated[bool, Option("--link", help="Link to images instead of copying.")] = False,
) -> None:
    """Sort images without labels into folders of look-alikes.

    Rename each folder to the label of its images, remove images that do not belong, and fit the result. You can join folders of
    the same label.
    """
    from labelwise.images.as_images import as_images
    from labelwise.images.file_images import FileImages
    from labelwise.reporting.answer_sheet import groups_page

    _check_unnamed(out_folder)
    check_sorted(out_folder, GROUPS)
    check_writable(out_folder / PAGE)
    own = out_folder.resolve()
    files = as_images(paths)
    if not isinstance(files, FileImages):
        raise UsageError("group copies image files and cannot read shards. Give files or folders.")
    files = files.select([not Path(file).resolve().is_relative_to(own) for file in files.ids])
    groups = lw.group(files, count, seed=shared_options().seed)
    names = [f"group {number:0{len(str(len(groups)))}}" for number in range(1, len(groups) + 1)]
    sorter = Sorter(out_folder, dict(zip(names, names, strict=True)), link=link, source=GROUPS)
    used_names: set[str] = set()  # file names are unique across folders, so folders can be joined
    for name, members in zip(names, groups, strict=True):
        for file in members:
            own_name = next(candidate for candidate in numbered(Path(file).name) if candidate not in used_names)
            used_names.add(own_name)
            sorter.place(file, name, own_name)
    sorter.finish("")
    write_file(out_folder / PAGE, groups_page(names, groups).encode("utf-8", "replace"))
    table = plain_table("folder", ">images", "most typical image")
    for name, members in zip(names, groups, strict=True):
        table.add_row(name, str(len(members)), members[0])
    fit = shlex.join(["labelwise", "fit", str(out_folder), "--out", f"{out_folder.name}.lw"])
    show(
        {"out": str(out_folder), "groups": _document(names, groups)},
        table,
        styled(
            (str(out_folder), "bold"),
            f": {sum(map(len, groups))} images in {len(groups)} folders; {out_folder / PAGE} shows them",
        ),
        one_line(f"Rename each folder to the label of its images. Then: {fit}"),
    )


def _document(names: list[str], groups: list[list[str]]) -> list[dict[str, Any]]:
    return [
        {"folder": name, "images": len(members), "files": members} for name, members in zip(names, groups, strict=True)
    ]


def _check_unnamed(root: Path) -> None:
    """Raise an error if the folder has groups that a person changed since an earlier run."""
    moved_files = read_record(root).get("placed", {})
    missing_names = (
        [name for name in moved_files if not (root / name).exists()] if isinstance(moved_files, dict) else []
    )
    if missing_names:
        raise UsageError(
            f'"{root}" has groups that were renamed or changed ({listing(sorted({Path(name).parts[0] for name in missing_names}))}). '
            "They are not overwritten. Choose another folder."
        )
