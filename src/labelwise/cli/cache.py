"""The verb cache: the feature cache."""

from typing import Annotated

from typer import Option

from labelwise.cli.output import one_line, plain_table, show


def cache(clear: Annotated[bool, Option("--clear", help="Remove everything in it.")] = False) -> None:
    """Show the feature cache, or clear it."""
    from labelwise.support.cache import Cache, is_on

    feature_cache = Cache()
    before = feature_cache.contents()
    if clear:
        feature_cache.clear()
    after = feature_cache.contents() if clear else before
    table = plain_table("encoder", ">images", rows=[(name, str(count)) for name, count in after.encoders.items()])
    words = f"{after.file}: {after.megabytes:.1f} MB of at most {after.limit:.0f}"
    words += "" if is_on() else "; off, because of LABELWISE_CACHE"
    lines = [f"Removed {before.megabytes:.1f} MB."] if clear else []
    document = {
        **vars(after),
        "file": str(after.file),
        "on": is_on(),
        "cleared_megabytes": before.megabytes if clear else 0.0,
    }
    show(document, *lines, one_line(words), *([table] if after.encoders else []))
