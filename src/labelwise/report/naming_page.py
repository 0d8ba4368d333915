"""A page for a person who has no labels: each label with its certainty, size and pictures. One file, no script."""

from collections.abc import Sequence

from torch import Tensor

from labelwise.data.sheets import thumbnail
from labelwise.evaluate.naming import ClusterImages, NamedCluster
from labelwise.report.pages import picture, render

SIDE = 96  # of a picture on the page
DOUBTFUL, APART, OFF = 0.5, 0.7, 1.5  # what is pointed out: certainty and togetherness below, sizes this factor off


def naming_page(
    title: str,
    clusters: Sequence[NamedCluster],
    shown: Sequence[ClusterImages],
    images: Tensor,
    files: Sequence[str],
) -> str:
    """Return the page as HTML, pictures inside it.

    Args:
        title: what was named, in words.
        clusters: what is known of each, in the order of the page.
        shown: the rows to show, by the number of the cluster.
        images: pictures ``[n, c, h, w]`` (bytes), or features, of which the files are listed.
        files: the name of each image.
    """
    rows = {row for one in shown for row in one.nearest + one.drawn} if images.ndim > 2 else set()
    values = {
        "title": title,
        "clusters": [(one, shown[one.cluster], doubts(one)) for one in clusters],
        "pictures": {row: picture(thumbnail(images[row], SIDE), files[row]) for row in rows},
        "files": files,
    }
    return render("naming.html", values)


def doubts(one: NamedCluster) -> list[str]:
    """Return what a person should look at in a cluster, in words; nothing where no figure stands out."""
    found = []
    if one.certainty < DOUBTFUL:
        found.append("the name is in doubt")
    if one.together < APART:
        found.append("other groupings divide it differently")
    if not one.answered and one.agreement < one.together / 2:
        found.append("most other groupings call it something else")
    if one.share > 0 and one.size > OFF * one.share:
        found.append("larger than expected")
    if one.share > 0 and one.size < one.share / OFF:
        found.append("smaller than expected")
    return found
