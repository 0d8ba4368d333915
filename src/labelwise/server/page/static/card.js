// The view of the model's card: figures, how it came about, what it can do, its limits.

import { $, count, make } from "./dom.js";

const CAN = {
  classify: "Name what an image shows",
  ask: "Answer yes or no about a label",
  ask_text: "Answer about a sentence of yours",
  explain: "Show the evidence for a label",
  promise: "Promise how often it is right",
  outliers: "Say “none of these”",
  verify: "Say whether two images show the same label",
  retrieve: "Find the nearest images",
  teach_examples: "Learn a label from images",
  teach_texts: "Learn a label from a description",
  teach_vector: "Learn a label from numbers",
  correct: "Learn more images of a known label",
  forget: "Forget a label",
  undo: "Take the last change back",
};

/** Show the card. */
export function showCard(card) {
  const title = card.title || card.model;
  $("model-title").textContent = title;
  $("model-lead").textContent = `${card.method}, ${count(card.labels, "label")}`;
  const figures = Object.entries(card.figures ?? {}).filter(([key, value]) => typeof value === "number" && !key.endsWith("_before"));
  $("figures").replaceChildren(...figures.map(([key, value]) => {
    const before = card.figures[key.replace("_after", "_before")];
    const note = before === undefined || before === value ? "" : `${share(before)} before calibration`;
    return make("li", {}, make("strong", { text: value >= 0 && value <= 1 ? share(value) : plain(value) }),
      make("span", { text: spaced(card.words[key] ?? key) }), note && make("span", { class: "muted", text: note }));
  }));
  const facts = { method: card.method, labels: card.labels, "labels with images": card.seen, "labels from descriptions": card.described,
    "images are seen as": seen(card.shape), ...card.trained };
  $("facts").replaceChildren(...Object.entries(facts).filter(([, value]) => plain(value) !== "").flatMap(([key, value]) => [
    make("dt", { text: spaced(card.words[`trained_${key}`] ?? key) }), make("dd", { text: plain(value) })]));
  $("can").replaceChildren(...abilities(card.can));
  $("limits").replaceChildren(...(card.limits ?? []).map((text) => make("li", { text })));
}

function abilities(can) {
  const said = new Set();
  return Object.entries(can).filter(([key]) => key in CAN).map(([key, reason]) => {
    const why = said.has(reason) ? "For the same reason." : reason;
    said.add(reason);
    return make("li", { class: reason === null ? "can-yes" : "can-no" },
      make("span", {}, make("span", { class: "unseen", text: reason === null ? "Yes: " : "No: " }), CAN[key]),
      reason !== null && make("span", { class: "muted", text: why }));
  });
}

function seen(shape) {
  return shape?.length === 3 ? `${shape[2]} × ${shape[1]} pixels, ${shape[0] === 1 ? "grey" : "colour"}` : "";
}

function spaced(key) {
  const words = key.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

/** Return a measured share, exact where it is 0 or all. */
function share(value) {
  return `${(100 * value).toFixed(1)}\u00a0%`;
}

function plain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(3);
  if (typeof value === "boolean") return value ? "yes" : "no";
  return typeof value === "string" ? value : "";
}
