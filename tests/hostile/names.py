"""Names of labels and files that bite where they are shown."""

HOSTILE = (
    "[red]tart[/red]",
    "[/bold]",
    "esc \x1b[31mred\x1b[0m \x1b]0;title\x07",
    "csi \x9b2J",
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
    "back\bspace and \x7f",
    "../../etc/passwd",
    "-- --json",
    "%s %d {0}",
    "x" * 10_000,
)
