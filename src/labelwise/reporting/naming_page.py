"""A page to review the names of clusters: certainty, size and images of each. One file, no script."""

from collections.abc import Mapping, Sequence
from typing import Any

from labelwise.evaluation.naming import ClusterImages, NamedCluster
from labelwise.images.sheets import thumbnail
from labelwise.reporting.pages import page_image, render

SIDE = 96  # pixels of an image on the page
DOUBTFUL, APART, OFF = 0.5, 0.7, 1.5  # thresholds of doubts: certainty, cohesion, and factor of the expected size


def naming_page(
    title: str,
    clusters: Sequence[NamedCluster],
    examples: Sequence[ClusterImages],
    images: Mapping[int, Any],
    files: Sequence[str],
) -> str:
    """Return the page as HTML, with the images ``[c, h, w]`` (bytes) given by row; other images are listed by file name.

    Clusters come in the order of the page; ``examples`` has the rows to show of each, by its number.
    """
    values = {
        "title": title,
        "clusters": [(cluster, examples[cluster.cluster], doubts(cluster)) for cluster in clusters],
        "images": {row: page_image(thumbnail(image, SIDE), files[row]) for row, image in images.items()},
        "files": files,
    }
    return render("naming.html", values)


def doubts(cluster: NamedCluster) -> list[str]:
    """Return the doubts about a cluster; empty if no figure stands out."""
    doubtful = {
        "the name is in doubt": cluster.certainty < DOUBTFUL,
        "other clusterings divide it differently": cluster.together < APART,
        "most other clusterings give it another name": not cluster.answered
        and cluster.agreement < cluster.together / 2,
        "larger than expected": 0 < OFF * cluster.share < cluster.size,
        "smaller than expected": cluster.share > 0 and cluster.size < cluster.share / OFF,
    }
    return [words for words, true in doubtful.items() if true]
