const corrections = [];
const bar = document.querySelector(".correct"), count = document.getElementById("count");
const show = () => {
  const n = corrections.length;
  count.textContent = n ? `${n} correction${n > 1 ? "s" : ""}.` : "No corrections.";
  for (const id of ["undo", "save"]) document.getElementById(id).disabled = !n;
};
for (const figure of document.querySelectorAll("figure[data-file]")) {
  const input = document.createElement("input");
  input.setAttribute("list", "labels");
  input.placeholder = figure.dataset.suggested ? `this is ${figure.dataset.suggested}?` : "this is ...";
  input.setAttribute("aria-label", `This is: ${figure.dataset.file}`);
  let last = "";
  input.addEventListener("change", () => {
    const label = input.value.trim();
    if (label === last) return;
    corrections.push({ input, file: figure.dataset.file, before: last, label });
    last = label;
    show();
  });
  input.undo = (label) => { input.value = last = label; };
  figure.append(input);
}
const figures = [...document.querySelectorAll("figure[data-file]")];
let place = 0;
const go = (step) => {
  place = Math.max(0, Math.min(figures.length - 1, place + step));
  figures[place].tabIndex = -1;
  figures[place].focus({ preventScroll: true });
  figures[place].scrollIntoView({ block: "center" });
};
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input") || event.ctrlKey || event.metaKey || event.altKey || !figures.length) return;
  const figure = figures[place], suggested = figure.dataset.suggested;
  if (event.key === "j" || event.key === "ArrowRight") go(document.activeElement === figure ? 1 : 0);
  else if (event.key === "k" || event.key === "ArrowLeft") go(-1);
  else if (event.key === "a" && suggested) {
    const input = figure.querySelector("input");
    input.value = suggested;
    input.dispatchEvent(new Event("change"));
    go(1);
  } else if (event.key === "u" && corrections.length) document.getElementById("undo").click();
  else return;
  event.preventDefault();
});
document.getElementById("undo").addEventListener("click", () => {
  const one = corrections.pop();
  one.input.undo(one.before);
  show();
});
document.getElementById("save").addEventListener("click", () => {
  const final = new Map();
  for (const { file, label } of corrections) { final.delete(file); if (label) final.set(file, label); }
  const cell = (text) => `"${(/^'*[=+\-@\t\r]/.test(text) ? "'" + text : text).replaceAll('"', '""')}"`;
  const rows = [["image", "label"], ...final].map((row) => row.map(cell).join(","));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([rows.join("\r\n") + "\r\n"], { type: "text/csv" }));
  link.download = "corrections.csv";
  link.click();
  URL.revokeObjectURL(link.href);
});
bar.hidden = false;
show();
