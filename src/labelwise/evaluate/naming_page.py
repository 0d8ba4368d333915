"""A page for a person who has no labels: each label with its certainty, size and pictures. One file, no script."""

import base64
import io
from collections.abc import Sequence
from html import escape

from torch import Tensor

from labelwise.data.sheets import thumbnail
from labelwise.evaluate.naming import ClusterImages, NamedCluster

SIDE = 96  # of a picture on the page
DOUBTFUL, APART, OFF = 0.5, 0.7, 1.5  # what is pointed out: certainty and togetherness below, sizes this factor off

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .3rem; } h2 { font-size: 1.25rem; margin: 0; }
h3 { font-size: .85rem; font-weight: normal; color: #555; margin: .8rem 0 .2rem; }
table { border-collapse: collapse; width: 100%; margin: 1rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid #ddd; text-align: right; vertical-align: top; }
td { white-space: nowrap; } td:last-child { white-space: normal; min-width: 14rem; }
th:first-child, td:first-child, th:last-child, td:last-child { text-align: left; }
.wide { overflow-x: auto; } section { border-top: 2px solid #ccc; padding: 1.2rem 0; break-inside: avoid; }
dl { display: flex; flex-wrap: wrap; gap: .2rem 1.6rem; margin: .4rem 0; } dl div { display: flex; gap: .4rem; }
dt { color: #555; } dd { margin: 0; font-weight: 600; }
.strip { display: flex; flex-wrap: wrap; gap: 4px; } .strip img { display: block; }
.strip code { background: #f3f3f3; padding: .1rem .4rem; overflow-wrap: anywhere; }
.look { color: #9a3412; margin: .3rem 0; } .note { background: #fff7e0; border-left: 4px solid #e0a800; padding: .6rem 1rem; }
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
    rows = "\n".join(_row(one) for one in clusters)
    parts = "\n".join(_section(one, shown[one.cluster], images, files) for one in clusters)
    head = "<th>label</th><th>cluster</th><th>sure of the name</th><th>images</th><th>expected</th><th>called the same</th>"
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>
<style>{STYLE}</style></head>
<body>
<h1>{escape(title)}</h1>
<p>{len(clusters)} labels, the least certain name first; example pictures from {len(files)} images.</p>
{NOTE}
<div class="wide"><table><thead><tr>{head}<th>look at</th></tr></thead>
<tbody>
{rows}
</tbody></table></div>
{parts}
</body></html>
"""


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


def _row(one: NamedCluster) -> str:
    cells = [str(one.cluster), _sure(one), *map(_percent, (one.size, one.share, one.agreement))]
    figures = "".join(f"<td>{cell}</td>" for cell in cells)
    link = f'<a href="#cluster-{one.cluster}">{escape(one.label)}</a>'
    return f"<tr><td>{link}</td>{figures}<td>{escape('; '.join(doubts(one)))}</td></tr>"


def _section(one: NamedCluster, shown: ClusterImages, images: Tensor, files: Sequence[str]) -> str:
    facts = {
        "cluster": str(one.cluster),
        "sure of the name": _sure(one),
        "images": f"{_percent(one.size)} (expected {_percent(one.share)})",
        "called the same by other groupings": _percent(one.agreement),
        "kept together by them": _percent(one.together),
    }
    if one.others:
        facts["may also be"] = ", ".join(f"{escape(name)} {_percent(share)}" for name, share in one.others)
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
        inside = "".join(_picture(images[row], files[row]) for row in rows)
    return f'<h3>{caption}</h3><div class="strip">{inside}</div>'


def _picture(picture: Tensor, file: str) -> str:
    stream = io.BytesIO()
    small = thumbnail(picture, SIDE)
    small.save(stream, "PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    said, size = escape(file), f'width="{small.width}" height="{small.height}"'
    return f'<img src="data:image/png;base64,{data}" alt="{said}" title="{said}" {size}>'


def _sure(one: NamedCluster) -> str:
    return "a person said so" if one.answered else _percent(one.certainty)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
