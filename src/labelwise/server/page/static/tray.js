// Several images at once: a strip of them, each with its answer; the chosen one is shown large.

import { make, percent } from "./dom.js";

/**
 * Make a list show images.
 * @param pick told the image that is chosen
 */
export function tray(list, pick) {
  const rows = new Map(); // by image

  function show(images) {
    rows.clear();
    list.hidden = images.length < 2;
    for (const image of images) {
      const said = make("span", { class: "said-of", text: "…" });
      const row = make("button", { type: "button", "aria-pressed": "false", onclick: () => pick(image) }, make("img", { src: image.url, alt: image.name }), said);
      rows.set(image, { row, said });
    }
    list.replaceChildren(...[...rows.values()].map(({ row }) => make("li", {}, row)));
  }

  function choose(image) {
    for (const [one, { row }] of rows) row.setAttribute("aria-pressed", String(one === image));
  }

  function answer(image, found) {
    const known = rows.get(image);
    if (!known) return;
    known.answered = true;
    known.said.textContent = words(found);
    known.row.title = found ? `${image.name}: ${words(found)}, ${percent(found.probability)}` : image.name;
  }

  return { show, choose, answer, answered: (image) => Boolean(rows.get(image)?.answered) };
}

function words(found) {
  if (!found) return "no answer";
  if (found.label === "unknown") return "none of these";
  if (!found.multilabel) return found.label;
  return found.answers.filter((row) => row.yes).map((row) => row.label).join(", ") || "no label";
}
