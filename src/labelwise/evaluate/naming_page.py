"""A page for a person who has no labels: each label with its certainty, size and pictures. One file, no script."""

from collections.abc import Sequence
from html import escape

from torch import Tensor

from labelwise.data.sheets import thumbnail
from labelwise.evaluate.naming import ClusterImages, NamedCluster
from labelwise.pages import document, percent, picture, table

SIDE = 96  # of a picture on the page
DOUBTFUL, APART, OFF = 0.5, 0.7, 1.5  # what is pointed out: certainty and togetherness below, sizes this factor off

STYLE = """
td { white-space: nowrap; } td:last-child { white-space: normal; min-width: 14rem; } th:last-child, td:last-child { text-align: left; }
h3 { font-size: .85rem; font-weight: normal; margin: .8rem 0 .2rem; }
section { border-top: 2px solid var(--line); padding: 1.2rem 0; break-inside: avoid; }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.6rem; margin: .4rem 0; } dl div { display: flex; gap: .4rem; }
dt { color: var(--soft); } dd { margin: 0; font-weight: 600; }
.strip { display: flex; flex-wrap: wrap; gap: 4px; } .strip img { display: block; }
.strip code { background: var(--panel); padding: .1rem .4rem; } .look { color: var(--warn); margin: .3rem 0; }
"""
NOTE = """<p class="note"><strong>Nothing on this page was checked against a label.</strong> Certainty says how far several groupings
of the pictures agree on a name; a name that all of them agree on can still be wrong, and two labels that are alike may be
exchanged. Look at the pictures of every label before you rely on its name. Those nearest to the centre show a group at its best;
those drawn at random show what the label is really given to.</p>"""


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
    parts = "\n".join(_section(one, shown[one.cluster], images, files) for one in clusters)
    head = ("label", "cluster", "sure of the name", "images", "expected", "called the same", "look at")
    body = f"""<h1>{escape(title)}</h1>
<p>{len(clusters)} labels, the least certain name first; example pictures from {len(files)} images.</p>
{NOTE}
{table(head, map(_row, clusters))}
{parts}"""
    return document(title, body, style=STYLE)


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


def _row(one: NamedCluster) -> list[str]:
    link = f'<a href="#cluster-{one.cluster}">{escape(one.label)}</a>'
    figures = map(percent, (one.size, one.share, one.agreement))
    return [link, str(one.cluster), _sure(one), *figures, escape("; ".join(doubts(one)))]


def _section(one: NamedCluster, shown: ClusterImages, images: Tensor, files: Sequence[str]) -> str:
    facts = {
        "cluster": str(one.cluster),
        "sure of the name": _sure(one),
        "images": f"{percent(one.size)} (expected {percent(one.share)})",
        "called the same by other groupings": percent(one.agreement),
        "kept together by them": percent(one.together),
    }
    if one.others:
        facts["may also be"] = ", ".join(f"{escape(name)} {percent(share)}" for name, share in one.others)
    told = "".join(f"<div><dt>{key}</dt><dd>{value}</dd></div>" for key, value in facts.items())
    look = "".join(f'<p class="look">{escape(words)}</p>' for words in doubts(one))
    strips = _strip("nearest to the centre", shown.nearest, images, files)
    strips += _strip("drawn at random from the rest", shown.drawn, images, files)
    strips = strips or "<p>None of the images given is in it.</p>"
    return f'<section id="cluster-{one.cluster}"><h2>{escape(one.label)}</h2><dl>{told}</dl>{look}{strips}</section>'


def _strip(caption: str, rows: Sequence[int], images: Tensor, files: Sequence[str]) -> str:
    if not rows:
        return ""
    if images.ndim == 2:
        inside = "".join(f"<code>{escape(files[row])}</code>" for row in rows)
    else:
        inside = "".join(picture(thumbnail(images[row], SIDE), files[row]) for row in rows)
    return f'<h3>{caption}</h3><div class="strip">{inside}</div>'


def _sure(one: NamedCluster) -> str:
    return "a person said so" if one.answered else percent(one.certainty)
