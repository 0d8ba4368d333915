// Which labels may occur: a list that is typed or opened, shown while it is in use, and taken away with one button.

import { $, count, phrase } from "./dom.js";

const SHOWN = 3; // names that are not labels

/**
 * Set up the field.
 * @param again asks about the images again
 */
export function priorField(again) {
  let list = "";

  function apply(text) {
    list = text.trim();
    $("prior-note").hidden = !list;
    note("Only labels of your list may occur.");
    again();
  }

  function note(text) {
    $("prior-note").firstElementChild.textContent = text;
  }

  /** Say what the list did to an answer. */
  function say(found, labels) {
    if (!found) return;
    const others = found.others.slice(0, SHOWN).map((name) => `“${name}”`);
    if (found.others.length > SHOWN) others.push(`${found.others.length - SHOWN} more`);
    const unknown = others.length ? ` Not labels here: ${phrase(others)}.` : "";
    note(`Only ${found.labels} of ${count(labels, "label")} may occur.${unknown}`);
  }

  $("prior-form").addEventListener("submit", (event) => { event.preventDefault(); apply($("prior-text").value); });
  $("prior-file").addEventListener("change", async () => {
    const [file] = $("prior-file").files;
    if (!file) return;
    $("prior-text").value = await file.text();
    $("prior-file").value = "";
    apply($("prior-text").value);
  });
  $("prior-all").addEventListener("click", () => {
    apply("");
    $("prior-text").focus();
  });
  return { list: () => list, say };
}
