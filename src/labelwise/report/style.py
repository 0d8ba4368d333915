"""How a report looks, beyond what all pages share, and the script that sorts its tables."""

STYLE = """
header { margin-bottom: 1.2rem; } header p { margin: 0; }
section { border-top: 1px solid var(--line); padding: 1.6rem 0 1rem; margin-top: 1rem; scroll-margin-top: .5rem; }
section > p { max-width: 46rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 1.2rem 0 0; font-size: .9rem; } nav a { text-decoration: none; }
nav a:hover { text-decoration: underline; }
.note { margin: 0 0 1.2rem; color: var(--warn); } .note ul { margin: 0; padding-left: 1.1rem; } .note li { margin: .15rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 0; }
.cards div { background: var(--panel); border-radius: 10px; padding: .8rem .9rem; border: 1px solid transparent; }
.cards dt { color: var(--soft); font-size: .82rem; } .cards dd { margin: 0; font-size: .78rem; color: var(--soft); }
.cards dt + dd { font-size: 1.55rem; line-height: 1.3; font-weight: 650; color: var(--ink); font-variant-numeric: tabular-nums; }
.beside { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: .5rem 2.2rem; align-items: start; }
@media (min-width: 56rem) { .beside.large { grid-template-columns: minmax(0, 1.75fr) minmax(0, 1fr); } }
.beside > *, .charts > * { min-width: 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: .5rem 2rem; }
figure { margin: .8rem 0 0; } figure.chart { max-width: 30rem; } figcaption { color: var(--soft); font-size: .82rem; margin-top: .3rem; }
svg.plot { display: block; width: 100%; height: auto; font-size: 11px; } svg text { fill: var(--soft); } svg .strong { fill: var(--ink); }
svg .on { fill: var(--paper); } .grid { stroke: var(--line); fill: none; } .axis, .tick { stroke: var(--soft); fill: none; stroke-opacity: .7; }
.sheet { fill: var(--panel); } .limit { stroke: var(--ink); stroke-dasharray: 4 3; fill: none; }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; } .line.dash { stroke-dasharray: 5 4; stroke-width: 1.3; }
.area { fill-opacity: .22; } circle { fill-opacity: .85; } svg.map text { fill: var(--ink); font-size: 11px; }
.sa { stroke: var(--a); } .sb { stroke: var(--b); } .sc { stroke: var(--c); } .sd { stroke: var(--d); } .se { stroke: var(--e); } .sf { stroke: var(--f); }
.fa { fill: var(--a); } .fb { fill: var(--b); } .fc { fill: var(--c); } .fd { fill: var(--d); } .fe { fill: var(--e); } .ff { fill: var(--f); }
.ka { color: var(--a); } .kb { color: var(--b); } .kc { color: var(--c); } .kd { color: var(--d); } .ke { color: var(--e); } .kf { color: var(--f); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0; margin: .3rem 0 0; font-size: .82rem; }
.key { display: inline-block; width: 1.1rem; border-top: 3px solid currentColor; vertical-align: middle; margin-right: .4rem; border-radius: 2px; }
.key.dash { border-top-style: dashed; border-top-width: 2px; }
table { font-size: .9rem; } table.names2 td:nth-child(2), table.names2 th:nth-child(2) { text-align: left; }
table.labels:not(.several) th:nth-child(6), table.labels:not(.several) td:nth-child(6) { text-align: left; } table.labels td { white-space: nowrap; }
.meter { display: block; width: 5rem; height: .5rem; background: var(--line); border-radius: 4px; margin-top: .45rem; overflow: hidden; }
.meter span { display: block; height: 100%; background: var(--a); }
.sortable th button { all: unset; cursor: pointer; } .sortable th button:focus-visible { outline: 2px solid var(--a); outline-offset: 2px; }
.sortable th[aria-sort=ascending] button::after { content: " ↑"; } .sortable th[aria-sort=descending] button::after { content: " ↓"; }
.examples { list-style: none; padding: 0; margin: .4rem 0 0; display: grid; gap: .9rem;
  grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr)); }
.examples.few { grid-template-columns: repeat(auto-fill, minmax(min(15rem, 100%), 1fr)); }
.examples li { background: var(--panel); border-radius: 10px; padding: .7rem; min-width: 0; break-inside: avoid; }
.examples figure { margin: 0; } .examples img { display: block; border-radius: 5px; max-width: 100%; height: auto; }
.examples figcaption { font-size: .72rem; line-height: 1.3; max-width: 7rem; overflow-wrap: anywhere; } .pair { display: flex; gap: .5rem; }
.pair figure { flex: 0 1 112px; min-width: 0; } .said { font-size: .88rem; margin-top: .4rem; overflow-wrap: anywhere; }
.examples.few li { display: flex; gap: .8rem; } .examples.few figure { flex: 0 0 84px; } .examples.few .said { margin: 0; min-width: 0; }
.said dl { margin: 0 0 .2rem; } .said dt { font-size: .76rem; color: var(--soft); } .said dd { margin: 0 0 .2rem; font-weight: 600; }
.said dt::before { content: "✗ "; color: var(--b); } .said dt.good::before { content: "✓ "; color: var(--c); }
.file { display: block; color: var(--soft); font-size: .74rem; }
.facts { display: flex; flex-wrap: wrap; gap: .2rem 1.6rem; margin: .4rem 0; font-size: .9rem; } .facts div { display: flex; gap: .4rem; }
.facts dt { color: var(--soft); } .facts dd { margin: 0; font-weight: 600; }
pre { background: var(--panel); border-radius: 10px; padding: .9rem 1rem; margin: .6rem 0; overflow-x: auto; }
pre code { overflow-wrap: normal; }
@media (max-width: 30rem) { body { margin-top: 1rem; } h1 { font-size: 1.4rem; } th, td { padding: .3rem .45rem; }
  .cards { grid-template-columns: 1fr 1fr; gap: .5rem; } .cards div { padding: .6rem .7rem; } .cards dt + dd { font-size: 1.3rem; } }
@media print { body { margin: 0; max-width: none; font-size: 11pt; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  nav { display: none; } figure, tr, .cards div { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .cards div, .examples li, pre { border: 1px solid var(--line); } pre { white-space: pre-wrap; } .wide { overflow: visible; }
  .wide > div { min-width: 0 !important; } table.labels td { white-space: normal; } th, td { padding: .25rem .4rem; }
  .charts, .beside:not(.large) { grid-template-columns: 1fr 1fr; } .examples { grid-template-columns: 1fr 1fr; } }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => {
    const text = row.cells[i].textContent.trim(), number = parseFloat(text);
    return [text === "" || text === "—" ? -Infinity : number, text];
  };
  heads.forEach((head, i) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...table.tBodies[0].rows];
      const numeric = rows.every((row) => !Number.isNaN(value(row, i)[0]));
      rows.sort((a, b) => {
        const [x, s] = value(a, i), [y, t] = value(b, i);
        const order = numeric ? (x === y ? 0 : x < y ? -1 : 1) : s.localeCompare(t);
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
"""
