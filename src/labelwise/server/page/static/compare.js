// The view that compares two images: same or different, and how near the limit.

import { $, percent, say, showFault } from "./dom.js";
import { readImage, show, takeDrops } from "./image.js";

/** Set up the view; see askView for what it is given. */
export function compareView(service, shared) {
  const images = { a: null, b: null };
  let asking = new AbortController();
  let received = Promise.resolve();

  /** Images come one after another, so that each of two that are pasted quickly has its own place. */
  function receive(give, side) {
    showFault($("verdict-fault"), null);
    const failed = (fault) => showFault($("verdict-fault"), fault);
    try {
      const files = give(); // at once: after the event there are none
      received = received.then(() => fill(files, side)).catch(failed);
    } catch (fault) {
      failed(fault);
    }
  }

  async function fill(files, side) {
    if (!files.length) return;
    const free = side ?? (images.a && !images.b ? "b" : "a");
    const places = files.length > 1 ? ["a", "b"] : [free];
    for (const [i, place] of places.entries()) {
      const next = await readImage(files[i]);
      if (images[place]) URL.revokeObjectURL(images[place].url);
      images[place] = next;
      show($(`zone-${place}`), next);
    }
    compare();
  }

  async function compare() {
    if (!images.a || !images.b) return;
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    const box = $("verdict");
    box.setAttribute("aria-busy", "true");
    showFault($("verdict-fault"), null);
    const body = new FormData();
    body.append("a", images.a.blob, "a");
    body.append("b", images.b.blob, "b");
    try {
      answer(await service.json("/verify", { body, signal }));
    } catch (fault) {
      if (fault.name === "AbortError") return;
      headline("No answer", "", false);
      showFault($("verdict-fault"), fault, compare);
    } finally {
      if (!signal.aborted) box.setAttribute("aria-busy", "false");
    }
  }

  function headline(head, sub, ruled) {
    $("verdict-head").textContent = head;
    $("verdict-sub").textContent = sub;
    $("ruler").hidden = !ruled;
    if (!ruled) $("ruler-note").textContent = "";
  }

  function answer({ same, similarity, probability, threshold }) {
    const sure = probability === undefined || probability === null ? "" : `Probability of the same: ${percent(probability)}.`;
    headline(same ? "Same" : "Different", sure, true);
    const low = Math.min(0, Math.floor(similarity), Math.floor(threshold));
    const high = Math.max(1, Math.ceil(similarity), Math.ceil(threshold));
    const at = (value) => (value - low) / (high - low);
    $("ruler").style.setProperty("--at", at(similarity));
    $("ruler").style.setProperty("--limit", at(threshold));
    $("ruler-note").textContent = `Similarity ${similarity.toFixed(3)}; the limit is ${threshold.toFixed(3)}.`;
    say(`${$("verdict-head").textContent}. ${sure} ${$("ruler-note").textContent}`);
  }

  function describe() {
    const reason = shared.card.can.verify;
    if (reason !== null) headline("Not with this model", reason, false);
  }

  for (const side of ["a", "b"]) takeDrops($(`zone-${side}`), $(`choose-${side}`), (give) => receive(give, side));
  return { receive, describe };
}
