"""The verb cache: the feature cache."""

from typing import Annotated

from typer import Option

from labelwise.cli.output import one_line, plain_table, show


def cache(clear: Annotated[bool, Option("--clear", help="Remove everything in it.")] = False) -> None:
    """Show the feature cache, or clear it."""
    from labelwise.support.cache import Cache, is_on

    kept = Cache()
    before = kept.contents()
    if clear:
        kept.clear()
    now = kept.contents() if clear else before
    table = plain_table("encoder", ">images", rows=[(name, str(count)) for name, count in now.encoders.items()])
    words = f"{now.file}: {now.megabytes:.1f} MB of at most {now.limit:.0f}"
    words += "" if is_on() else "; off, because of LABELWISE_CACHE"
    freed = [f"Removed {before.megabytes:.1f} MB."] if clear else []
    document = {
        **vars(now),
        "file": str(now.file),
        "on": is_on(),
        "cleared_megabytes": before.megabytes if clear else 0.0,
    }
    show(document, *freed, one_line(words), *([table] if now.encoders else []))
