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
