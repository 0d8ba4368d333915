// A text field that offers names while one types: arrows choose, Enter takes, Escape closes; any other text may stay.

import { make } from "./dom.js";

const SHOWN = 8;

/** Return the names that contain the words typed: those that start with them first. */
export function matches(names, typed, most = SHOWN) {
  const wanted = typed.trim().toLowerCase();
  if (!wanted) return names.slice(0, most);
  const starts = [], contains = [];
  for (const name of names) {
    const place = name.toLowerCase().indexOf(wanted);
    if (place === 0) starts.push(name);
    else if (place > 0) contains.push(name);
    if (starts.length >= most) break;
  }
  return [...starts, ...contains].slice(0, most);
}

/**
 * Make a field and its list a combobox.
 * @param names () => the names to offer now
 * @param taken told the name that was chosen
 */
export function combobox(field, list, names, taken) {
  let active = -1;

  function close() {
    list.hidden = true;
    active = -1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  function open() {
    const found = matches(names(), field.value);
    list.replaceChildren(...found.map((name, i) => make("li", {
      id: `${list.id}-${i}`, role: "option", "aria-selected": "false", text: name,
      onpointerdown: (event) => { event.preventDefault(); take(name); },
    })));
    list.hidden = !found.length;
    active = -1;
    field.removeAttribute("aria-activedescendant");
    field.setAttribute("aria-expanded", String(!list.hidden));
  }

  function move(step) {
    if (list.hidden) open();
    const rows = [...list.children];
    if (!rows.length) return;
    active = (active + step + rows.length + (active < 0 && step < 0 ? 1 : 0)) % rows.length;
    rows.forEach((row, i) => row.setAttribute("aria-selected", String(i === active)));
    rows[active].scrollIntoView({ block: "nearest" });
    field.setAttribute("aria-activedescendant", rows[active].id);
  }

  function take(name) {
    field.value = name;
    close();
    taken(name);
  }

  field.addEventListener("input", open);
  field.addEventListener("click", open);
  field.addEventListener("blur", close);
  field.form?.addEventListener("submit", close);
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") move(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Enter" && active >= 0) take(list.children[active].textContent);
    else if (event.key === "Escape" && !list.hidden) close();
    else return;
    event.preventDefault();
  });
  return close;
}
