// Small things about elements that every view needs.

export const $ = (id) => document.getElementById(id);

/** Return a new element: make("li", {class: "x", text: "y"}, child, ...). */
export function make(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(given)) {
    if (value === undefined || value === null || value === false) continue;
    if (key === "text") element.textContent = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter(Boolean));
  return element;
}

/** Say something to people who listen to the page. */
export function say(text) {
  $("say").textContent = text;
}

/** Show what went wrong in its place, with a button to try again where that makes sense; null takes it away. */
export function showFault(box, fault, again) {
  box.replaceChildren();
  box.hidden = !fault;
  if (!fault) return;
  if (!(fault.status >= 0)) console.error(fault); // ours to mend: not an answer of the service
  box.append(make("p", { text: fault.message || String(fault) }));
  const passing = fault.status === 0 || fault.status === 401 || fault.status === 429 || fault.status >= 500;
  if (again && passing) box.append(make("button", { type: "button", class: "button small", text: "Try again", onclick: again }));
}

/** Return a probability as people read it; none is so sure as 0 or 100 %. */
export function percent(value) {
  if (value < 0.001) return "<\u00a00.1\u00a0%";
  if (value > 0.999) return ">\u00a099.9\u00a0%";
  return `${(100 * value).toFixed(1)}\u00a0%`;
}

/** Return a list of words as one phrase: "a, b and c". */
export function phrase(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** Return a count with its noun: "1 image", "3 images". */
export function count(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}
