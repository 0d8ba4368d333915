// The view that teaches: a new label from images, a description or numbers; the list of labels; forget and undo.

import { $, count, make, say, showFault } from "./dom.js";
import { Fault } from "./api.js";
import { readImage, takeDrops } from "./image.js";

const WAYS = ["examples", "texts", "vector"];
const SHOWN = 200; // labels that are listed at once
const FROM = { examples: "images", texts: "description", vector: "numbers" };

/** Set up the view; see askView for what it is given. `refresh` reads the labels again. */
export function teachView(service, shared, refresh) {
  let images = [];
  let busy = false;

  // --- what to teach from ------------------------------------------------------------------------------------------

  const way = () => document.querySelector("input[name=way]:checked").value;

  function chooseWay() {
    const chosen = way();
    for (const one of WAYS) $(`way-${one}`).hidden = one !== chosen;
    const reason = shared.card?.can[`teach_${chosen}`];
    $("way-note").textContent = reason ?? "";
    $("teach-go").disabled = Boolean(reason);
  }

  async function receive(give) {
    showFault($("teach-fault"), null);
    try {
      for (const file of give()) {
        images.push(await readImage(file));
        drawImages();
      }
    } catch (fault) {
      showFault($("teach-fault"), fault);
    }
    document.querySelector("input[name=way][value=examples]").checked = true;
    chooseWay();
  }

  function drawImages() {
    $("zone-teach").classList.toggle("filled", images.length > 0);
    $("teach-images").replaceChildren(...images.map((one, i) => make("li", {}, make("img", { src: one.url, alt: one.name }),
      make("button", { type: "button", "aria-label": `Remove ${one.name}`, text: "×", onclick: () => drop(i) }))));
  }

  function drop(i) {
    URL.revokeObjectURL(images[i].url);
    images = images.filter((_, other) => other !== i);
    drawImages();
    const buttons = $("teach-images").querySelectorAll("button");
    (buttons[Math.min(i, buttons.length - 1)] ?? $("choose-teach")).focus();
  }

  function teachBody(name) {
    const chosen = way();
    if (chosen === "examples") {
      if (!images.length) throw new Fault("Give images of it first: drop, paste or choose some.", 400);
      const body = new FormData();
      images.forEach((one, i) => body.append("images", one.blob, `${i}`));
      return body;
    }
    if (chosen === "texts") {
      const texts = $("teach-texts").value.split("\n").map((line) => line.trim()).filter(Boolean);
      if (!texts.length) throw new Fault("Describe it first, in one or more sentences.", 400);
      return { label: name, texts };
    }
    const words = $("teach-vector").value.split(/[\s,;]+/).filter(Boolean);
    const vector = words.map(Number);
    const wrong = vector.findIndex((number) => !Number.isFinite(number));
    if (!vector.length) throw new Fault("Give its numbers first.", 400);
    if (wrong >= 0) throw new Fault(`“${words[wrong]}” is not a number.`, 400);
    return { label: name, vector };
  }

  // --- changes -----------------------------------------------------------------------------------------------------

  /** Do one change, say what came of it, and read the labels again. */
  async function change(box, work, again) {
    if (busy) return;
    busy = true;
    document.body.classList.add("changing");
    showFault(box, null);
    try {
      const said = await work();
      await refresh();
      $("teach-note").textContent = said;
      say(said);
    } catch (fault) {
      showFault(box, fault, again);
    } finally {
      busy = false;
      document.body.classList.remove("changing");
    }
  }

  function teach() {
    return change($("teach-fault"), async () => {
      $("teach-note").textContent = "";
      const name = $("teach-name").value.trim();
      if (!name) throw new Fault("Give the new label a name.", 400);
      const parent = $("teach-parent").value.trim();
      const { check } = await service.json("/teach", { query: { label: name, ...(parent && { parent }) }, body: teachBody(name) });
      for (const one of images) URL.revokeObjectURL(one.url);
      images = [];
      drawImages();
      for (const id of ["teach-name", "teach-parent", "teach-texts", "teach-vector", "filter"]) $(id).value = "";
      $("teach-name").focus();
      $("labels").scrollTop = 0; // where the new one appears
      return check ? `“${name}” is taught. ${check}` : `“${name}” is taught.`;
    }, teach);
  }

  function forget(name) {
    return change($("list-fault"), async () => {
      await service.json("/forget", { query: { label: name }, method: "POST" });
      $("filter").focus();
      return `“${name}” is forgotten.`;
    }, () => forget(name));
  }

  function undo() {
    return change($("list-fault"), async () => {
      const { undone } = await service.json("/undo", { method: "POST" });
      return `“${undone.label}” ${{ teach: "is removed", correct: "is corrected back", forget: "is restored" }[undone.action]}.`;
    }, undo);
  }

  // --- the list ----------------------------------------------------------------------------------------------------

  function drawLabels() {
    const wanted = $("filter").value.trim().toLowerCase();
    const taught = shared.labels.filter((one) => one.taught).reverse();
    const all = [...taught, ...shared.labels.filter((one) => !one.taught)];
    const found = wanted ? all.filter(({ name }) => name.toLowerCase().includes(wanted)) : all;
    const fixed = shared.card?.read_only || shared.card?.can.forget;
    $("labels").replaceChildren(...found.slice(0, SHOWN).map((one) => row(one, !fixed)));
    $("count").textContent = shared.labels.length;
    $("more").textContent = found.length > SHOWN ? `And ${found.length - SHOWN} more: type to filter.` : found.length ? "" : "No label contains this.";
    const parents = [...new Set(shared.labels.flatMap((one) => one.parents ?? []))];
    $("teach-parent-box").hidden = !parents.length;
    $("parents").replaceChildren(...parents.map((value) => make("option", { value })));
    const last = shared.undo;
    $("undo").disabled = !last;
    $("undo").textContent = last ? `Undo: ${last.action} ${last.label}` : "Undo";
  }

  function row(one, forgets) {
    const more = one.more ? `corrected by ${count(one.more, "image")}` : "";
    const source = one.taught ? `taught from ${one.examples ? count(one.examples + (one.more ?? 0), "image") : FROM[one.from] ?? one.from}` : more;
    return make("li", { class: one.taught ? "taught" : null }, make("span", { class: "name", text: one.name, title: one.name }),
      source && make("span", { class: "tag", text: source }),
      forgets && make("button", { type: "button", class: "button small plain", text: "Forget", "aria-label": `Forget ${one.name}`, onclick: () => forget(one.name) }));
  }

  function describe() {
    const { can, read_only: fixed, vector } = shared.card;
    document.body.classList.toggle("read-only", fixed);
    $("teach-form").hidden = $("undo").hidden = fixed;
    $("nav-teach").textContent = fixed ? "Labels" : "Teach";
    $("teach-title").textContent = fixed ? "The labels" : "Teach a new label";
    $("teach-lead").textContent = fixed ? "This service is read-only: you cannot teach or forget labels."
      : "No training: the model learns it at once, and the other labels do not change.";
    for (const one of WAYS) {
      const input = document.querySelector(`input[name=way][value=${one}]`);
      input.parentElement.classList.toggle("cannot", can[`teach_${one}`] !== null);
      input.setAttribute("aria-describedby", "way-note");
    }
    if (vector) $("vector-note").textContent = `${vector.size} numbers, separated by spaces or commas.`;
    chooseWay();
    drawLabels();
  }

  takeDrops($("zone-teach"), $("choose-teach"), receive);
  for (const input of document.querySelectorAll("input[name=way]")) input.addEventListener("change", chooseWay);
  $("teach-form").addEventListener("submit", (event) => { event.preventDefault(); teach(); });
  $("undo").addEventListener("click", undo);
  $("filter").addEventListener("input", drawLabels);
  return { receive, describe, drawLabels };
}
