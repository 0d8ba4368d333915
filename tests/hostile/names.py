"""Names of labels and files that bite where they are shown."""

HOSTILE = (
    "[red]tart[/red]",
    "[/bold]",
    "soft\u00adhyphen, zero\u200bwidth",
    "isolate \u2066\u2069\ufeff",
    "right \u202etoleft\u2069\u200f",
    "=cmd|' /C calc'!A0",
    "+1-1",
    "@sum(1)",
    "'=quoted",
    "<script>alert(1)</script>",
    "\"><img src=x onerror='alert(2)'>",
    "{{ 7 * 7 }} {% raw %}",
    "$\\frac{",
    "$ and $",
    ":smile: \N{GRINNING FACE}",
    "hard\u00a0space",
    "../../etc/passwd",
    "-- --json",
    "%s %d {0}",
    "x" * 200,
)
REFUSED = ("esc \x1b[31mred\x1b[0m \x1b]0;title\x07", "csi \x9b2J", "back\bspace and \x7f", "x" * 10_000)
