"""The verb merge: one classifier of the labels of several."""

from pathlib import Path
from typing import Annotated

from typer import Argument

import labelwise as lw
from labelwise.cli.inputs import open_model
from labelwise.cli.options import Out, shared_options
from labelwise.cli.outcome import estimate_line
from labelwise.cli.output import show, styled


def merge(models: Annotated[list[Path], Argument(help="Saved classifiers of one encoder.")], out_folder: Out) -> None:
    """Make one classifier of several, without their images."""
    from labelwise.core.store import check_free

    check_free(out_folder, shared_options().overwrite)
    result = lw.merge([open_model(model) for model in models], seed=shared_options().seed)
    lw.save(result, out_folder, overwrite=shared_options().overwrite)
    counts, estimate = result.origin.summary["merged"], result.origin.summary.get("leave_one_out")
    line = f": {len(result.labels)} labels from the stored features of {sum(counts)} images"
    lines = [styled((str(out_folder), "bold"), line)]
    if estimate is not None:
        lines.append(styled(estimate_line(estimate, "leave-one-out on", "stored images", None)))
    document = {"model": str(out_folder), "labels": list(result.labels.names), "images": counts}
    show({**document, "leave_one_out": estimate}, *lines)
