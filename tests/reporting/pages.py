"""A page taken apart: is it well formed, what does it refer to, and what do its tables and plots say?"""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "link", "hr", "input"}
SVG_LEAVES = {"path", "rect", "circle"}


@dataclass
class Page(HTMLParser):
    """What stands on a page."""

    html: str
    open: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    tables: list[list[list[str]]] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)
        self.close()
        assert self.open == [], f"left open: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        self.links += [str(given[name]) for name in ("src", "href", "xlink:href", "srcset", "action") if name in given]
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("td", "th"):
            self.tables[-1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SVG_LEAVES, f"<{tag}/> closes nothing in HTML"
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] in ("style", "script"):
            return
        if self.open[-1] == "title":
            self.titles.append(data)
            return
        self.texts.append(data)
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data

    @property
    def words(self) -> str:
        """All that can be read."""
        return re.sub(r"\s+", " ", " ".join(self.texts).replace("\u00a0", " ")).strip()

    def table(self, head: str) -> list[list[str]]:
        """Return the rows below the table whose first head is this."""
        found = [rows for rows in self.tables if rows and rows[0] and rows[0][0] == head]
        assert len(found) == 1, [rows[0] for rows in self.tables]
        return [[cell.replace("\u00a0", " ") for cell in row] for row in found[0][1:]]


def check_alone(page: Page) -> None:
    """Assert that a page needs nothing but itself."""
    for link in page.links:
        assert link.startswith(("#", "data:image/")), link
    for link in (link for link in page.links if link.startswith("#")):
        assert link[1:] in page.ids, link
    assert len(page.ids) == len(set(page.ids))
    bare = re.sub(r'"data:image/[^"]*"|<script>.*?</script>', "", page.html, flags=re.DOTALL)
    for absent in ("http:", "https:", "@import", "url(", "NaN", " nan", ">nan"):
        assert absent not in bare, absent
