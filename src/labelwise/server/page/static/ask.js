// The view that asks: what is it, is it a ..., why, and what is near.

import { $, make, percent, phrase, say, showFault } from "./dom.js";
import { Fault } from "./api.js";
import { combobox } from "./combobox.js";
import { heatMap } from "./heat.js";
import { priorField } from "./prior.js";
import { tray } from "./tray.js";
import { readImages, show, takeDrops } from "./image.js";

const TOP = 6;
const MANY = 12; // answers of a multi-label model that are shown at first
const REST = 120; // milliseconds on a name before its heat map is asked for
const NEAR = 8;

/**
 * Set up the view.
 * @param service the calls of the service
 * @param shared {card, labels, change}: what the views know together
 * @param changed told the count of changes an answer was given under
 * @param refresh reads the labels after a change made here, and asks again
 */
export function askView(service, shared, changed, refresh) {
  const draw = heatMap($("heat"));
  const maps = new Map(); // heat maps by image, change and question
  const prior = priorField(again);
  const strip = tray($("tray"), (one) => use(one).then(answerOthers));
  let images = [];
  let image = null; // the one of them that is shown
  let pinned = null; // the question whose heat map stays when the pointer leaves
  let asking = new AbortController();
  let looking = new AbortController();
  let finding = new AbortController();
  let timer = 0;
  let given = 0;

  // --- the image -------------------------------------------------------------------------------------------------

  async function receive(give) {
    showFault($("answer-fault"), null);
    const mine = ++given;
    try {
      const { images: some, fault } = await readImages(give());
      if (mine !== given) return; // others were given while these were read
      if (some.length) {
        for (const one of images) URL.revokeObjectURL(one.url);
        images = some;
        maps.clear();
        strip.show(images);
        const first = use(images[0]);
        await answerOthers();
        await first;
      }
      if (fault) showFault($("answer-fault"), fault);
    } catch (fault) {
      showFault($("answer-fault"), fault);
    }
  }

  /** Ask about each image but the one that is shown, one after the other. */
  async function answerOthers() {
    const mine = images;
    for (const one of mine) {
      if (one === image || strip.answered(one)) continue;
      const found = await service.json("/classify", { query: query(), body: one.blob }).catch(() => null);
      if (mine !== images) return;
      strip.answer(one, found);
    }
  }

  async function use(next) {
    image = next;
    strip.choose(image);
    told("");
    showFault($("correct-fault"), null);
    pinned = null;
    draw(null, null);
    show($("stage"), image);
    $("asked").replaceChildren();
    showFault($("ask-fault"), null);
    await look();
  }

  async function look() {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    if (shared.card?.can.retrieve === null) near(signal);
    await classify(signal);
  }

  /** Ask about all images again: the labels have changed. */
  async function again() {
    if (!image) return;
    strip.show(images);
    strip.choose(image);
    await look();
    await answerOthers();
  }

  // --- what is it? -------------------------------------------------------------------------------------------------

  async function classify(signal) {
    const box = $("answer");
    box.setAttribute("aria-busy", "true");
    showFault($("answer-fault"), null);
    try {
      const found = await service.json("/classify", { query: query(), body: image.blob, signal });
      changed(found.change);
      strip.answer(image, found);
      answer(found);
    } catch (fault) {
      if (fault.name === "AbortError") return;
      headline("No answer", "");
      $("bars").replaceChildren();
      $("none").classList.add("void");
      showFault($("answer-fault"), fault, look);
    } finally {
      if (!signal.aborted) box.setAttribute("aria-busy", "false");
    }
  }

  /** The request to the service: the best labels, what is promised of the answer, and which labels may occur. */
  function query() {
    const [name, value] = $("promise").value.split(" ");
    return { top: TOP, ...(value && { [name]: value }), ...(prior.list() && { prior: prior.list() }) };
  }

  function headline(text, sub, value = "") {
    $("headline").replaceChildren(make("span", { text }), value && make("span", { class: "sure", text: value }));
    $("subline").textContent = sub;
  }

  function answer(found) {
    const rows = found.multilabel ? found.answers : found.top;
    const yes = rows.filter((row) => row.yes).map((row) => row.label);
    const strange = found.label === "unknown";
    const near = `It looks most like ${found.top[0].label}.`;
    const { max_error: error, coverage } = query();
    if (strange) headline("None of these", `Unlike the images the model knows. ${near}`);
    else if (found.multilabel && !yes.length) headline("No label", "The image is of a familiar kind, and the answer to each label is no.");
    else if (found.multilabel) headline(phrase(yes), `${yes.length} of ${rows.length} labels answered yes.`);
    else if (found.label === "unsure") headline("Unsure", `No answer is sure enough: at most ${100 * error}\u00a0% may be wrong. ${near}`);
    else if (error) headline(found.label, shared.labels.some(({ name }) => name === found.label) ? `At most ${100 * error}\u00a0% of images get a wrong answer.` : `The label itself is too unsure. ${near}`, percent(found.probability));
    else if (coverage) headline(rows.length > 1 ? `One of ${rows.length} labels` : found.label, `The right label is listed for ${100 * coverage}\u00a0% of images.`);
    else headline(found.label, sureness(found.probability), percent(found.probability));
    $("answer").classList.toggle("strange", strange);
    $("bars").replaceChildren(...rows.slice(0, MANY).map((row) => bar(strange ? { ...row, probability: null } : row)), rest(rows));
    none(found.outlier, strange);
    prior.say(found.prior, shared.labels.length);
    $("teach-this").hidden = shared.card?.read_only ?? true;
    $("correct-form").hidden = !learners().length;
    say(`${$("headline").textContent}. ${$("subline").textContent}`);
    offerOthers(rows);
    pin({ label: rows[0].label });
  }

  /** Let a label be chosen to set the asked one against: the most probable ones first. */
  function offerOthers(rows) {
    const chosen = $("heat-not").value;
    const names = [...new Set([...rows, ...shared.labels.map(({ name }) => ({ label: name }))].map(({ label }) => label))];
    $("heat-not").replaceChildren($("heat-not").firstElementChild, ...names.map((name) => make("option", { value: name, text: name })));
    $("heat-not").value = names.includes(chosen) ? chosen : "";
  }

  function sureness(p) {
    if (p >= 0.95) return "The model is very sure.";
    if (p >= 0.75) return "The model is fairly sure.";
    return p >= 0.5 ? "The model is not sure: look at the next labels, too." : "The model is guessing: several labels fit about as well.";
  }

  function rest(rows) {
    if (rows.length <= MANY) return "";
    const more = make("button", { type: "button", class: "button small", text: `Show all ${rows.length} labels` });
    more.addEventListener("click", () => {
      const others = rows.slice(MANY).map((row) => bar(row));
      more.parentElement.replaceWith(...others);
      others[0].firstChild.focus();
    });
    return make("li", {}, more);
  }

  /** A row for one name: its bar, its probability; hovering, focusing or pressing it shows its heat map. A probability of null is not shown. */
  function bar({ label, text, yes, probability }) {
    const question = label === undefined ? { text } : { label };
    const said = yes === undefined ? null : make("span", { class: yes ? "said yes" : "said no", text: yes ? "yes" : "no" });
    const track = make("span", { class: "track", "aria-hidden": "true" }, make("i"));
    track.style.setProperty("--share", probability ?? 0);
    const row = make("button", { type: "button", class: "row", "aria-pressed": "false" },
      make("span", { class: "name", text: label ?? `“${text}”` }), said, track, make("span", { class: "value", text: probability === null ? "" : percent(probability) }));
    row.dataset.key = keyOf(question);
    row.addEventListener("pointerenter", () => follow(question));
    row.addEventListener("pointerleave", () => follow(pinned));
    row.addEventListener("focus", () => follow(question));
    row.addEventListener("blur", () => follow(pinned));
    row.addEventListener("click", () => pin(question));
    return make("li", {}, row);
  }

  /** How far the image is from all that the model knows, and whether that is past the limit. */
  function none(outlier, strange) {
    const row = $("none");
    row.classList.toggle("void", !outlier);
    if (!outlier) return;
    row.classList.toggle("yes", strange);
    $("none-value").textContent = strange ? "yes" : "no";
    const { score, threshold } = outlier;
    const known = Number.isFinite(threshold);
    row.querySelector(".scale").hidden = !known;
    if (!known) return;
    const [low, high] = [Math.min(-2, threshold - 1), Math.max(threshold + 4, 5)];
    const at = (value) => Math.min(1, Math.max(0, (value - low) / (high - low)));
    row.style.setProperty("--at", at(score));
    row.style.setProperty("--limit", at(threshold));
  }

  // --- why? --------------------------------------------------------------------------------------------------------

  const keyOf = (question) => `${image.id} ${shared.change} ${JSON.stringify(question)}`;
  const nameOf = (question) => question.label ?? `“${question.text}”`;

  function pin(question) {
    pinned = question;
    const key = keyOf(question);
    for (const row of document.querySelectorAll("#bars .row, #asked .row")) {
      row.setAttribute("aria-pressed", String(row.dataset.key === key));
    }
    follow(question, 0);
  }

  function follow(question, wait = REST) {
    clearTimeout(timer);
    if (!image || !question || !$("heat-on").checked || why() !== null) return;
    timer = setTimeout(() => explain(question), maps.has(keyOf(contrast(question))) ? 0 : wait);
  }

  /** The question, set against the label that is chosen for that. */
  function contrast(question) {
    const against = $("heat-not").value;
    return !against || against === question.label ? question : { ...question, against };
  }

  function why() {
    return shared.card ? shared.card.can.explain : "";
  }

  async function explain(question) {
    const query = contrast(question);
    const key = keyOf(query);
    const mine = image;
    looking.abort();
    looking = new AbortController();
    try {
      if (!maps.has(key)) {
        $("heat").classList.add("waiting");
        maps.set(key, await service.json("/explain", { query, body: mine.blob, signal: looking.signal }));
      }
      if (mine !== image) return;
      const found = maps.get(key);
      const any = [found.heat, found.heat_against ?? []].flat(2).some((level) => level > 0.02);
      draw(mine, any ? found : null);
      if (query.against) heatNote("Why ", nameOf(question), " (orange), not ", query.against, " (blue)");
      else heatNote(any ? "Evidence for " : "No evidence in the image for ", nameOf(question));
      document.querySelector(".heat-bar").classList.toggle("two", Boolean(query.against));
      $("heat").classList.remove("waiting");
    } catch (fault) {
      if (fault.name === "AbortError") return;
      draw(null, null);
      heatNote(fault.message);
      $("heat").classList.remove("waiting");
    }
  }

  /** Say what the heat map shows; every second word is a name. */
  function heatNote(...words) {
    $("heat-note").replaceChildren(...words.map((text, i) => (i % 2 ? make("strong", { text }) : text)));
  }

  function heatSwitch() {
    const on = $("heat-on").checked;
    $("heat").classList.toggle("off", !on);
    $("heat-strength").disabled = $("heat-not").disabled = !on;
    if (!on) heatNote("Shows which parts of the image are evidence for a label.");
    else if (image) follow(pinned, 0);
  }

  // --- is it ...? --------------------------------------------------------------------------------------------------

  function questionOf(typed) {
    const same = shared.labels.find(({ name }) => name.toLowerCase() === typed.toLowerCase());
    if (same) return { label: same.name };
    const unread = shared.card?.can.ask_text;
    if (unread) throw new Fault(`No label is called “${typed}”. ${unread}`, 422);
    return { text: typed };
  }

  async function ask() {
    const typed = $("ask-name").value.trim();
    showFault($("ask-fault"), null);
    try {
      if (!typed) throw new Fault("Type a label first.", 400);
      if (!image) throw new Fault("Give an image first: drop, paste or choose one.", 400);
      const question = questionOf(typed);
      const mine = image;
      const found = await service.json("/ask", { query: question, body: mine.blob, signal: asking.signal });
      if (mine !== image) return;
      const row = bar({ ...question, yes: found.yes, probability: found.probability });
      for (const old of $("asked").children) if (old.firstChild.dataset.key === row.firstChild.dataset.key) old.remove();
      $("asked").prepend(row);
      say(`Is it ${nameOf(question)}? ${found.yes ? "Yes" : "No"}, ${percent(found.probability)}.`);
      pin(question);
      $("ask-name").select();
    } catch (fault) {
      if (fault.name !== "AbortError") showFault($("ask-fault"), fault, ask);
    }
  }

  // --- corrections --------------------------------------------------------------------------------------------------

  /** Say what a correction did, with a button that takes it back; nothing where there is nothing to say. */
  function told(text, undoes = false) {
    $("correct-note").hidden = !text;
    $("correct-note").firstElementChild.textContent = text;
    $("correct-undo").hidden = !undoes;
    if (text) say(text);
  }

  /** The labels that can learn from one more image. */
  function learners() {
    const { can, read_only: fixed } = shared.card ?? { read_only: true };
    if (fixed || can.teach_examples !== null) return [];
    return shared.labels.filter((one) => can.correct === null || one.from === "examples").map(({ name }) => name);
  }

  async function correct() {
    const typed = $("correct-name").value.trim();
    showFault($("correct-fault"), null);
    try {
      const known = shared.labels.find(({ name }) => name.toLowerCase() === typed.toLowerCase());
      if (!typed) throw new Fault("Type the label that is right.", 400);
      if (!known) throw new Fault(`No label is called “${typed}”. Teach it as a new label.`, 404);
      await service.json("/correct", { query: { label: known.name }, body: image.blob });
      $("correct-name").value = "";
      await refresh();
      told(`Learned: this is “${known.name}”.`, true);
    } catch (fault) {
      showFault($("correct-fault"), fault, correct);
    }
  }

  async function takeBack() {
    showFault($("correct-fault"), null);
    try {
      const { undone } = await service.json("/undo", { method: "POST" });
      await refresh();
      told(`“${undone.label}” is as it was before.`);
    } catch (fault) {
      showFault($("correct-fault"), fault, takeBack);
    }
  }

  // --- what is near? -----------------------------------------------------------------------------------------------

  const near = (signal) => search("/retrieve", { query: { top: NEAR }, body: image.blob }, "Nearest images", signal);

  /** Find the images of the gallery that a sentence fits best. */
  function find() {
    const text = $("find-text").value.trim();
    if (!text) return $("find-text").focus();
    return search("/search", { query: { text, top: NEAR } }, `Best for \u201c${text}\u201d`);
  }

  /** Show what a search finds; one that was begun before is given up, and so is this one with the image that it is about. */
  async function search(path, given, title, about) {
    const list = $("near");
    finding.abort();
    finding = new AbortController();
    const signal = about ? AbortSignal.any([finding.signal, about]) : finding.signal;
    list.classList.add("waiting");
    showFault($("near-fault"), null);
    try {
      const { matches } = await service.json(path, { ...given, signal });
      const rows = await Promise.all(matches.map((match) => nearRow(match, signal)));
      $("near-title").textContent = title;
      $("near-note").textContent = rows.length ? "" : "The gallery is empty.";
      for (const old of list.querySelectorAll("img")) URL.revokeObjectURL(old.src);
      list.replaceChildren(...rows);
    } catch (fault) {
      if (fault.name !== "AbortError") showFault($("near-fault"), fault, () => search(path, given, title, about && asking.signal));
    } finally {
      if (!signal.aborted) list.classList.remove("waiting");
    }
  }

  const emptyNear = () => make("li", { "aria-hidden": "true", class: "empty" }, make("span", { class: "box" }));

  async function nearRow({ file, similarity, image: path }, signal) {
    const url = URL.createObjectURL(await service.blob(path, { signal }));
    return make("li", {}, make("img", { src: url, alt: "" }),
      make("span", { class: "file", text: file, title: file }), make("span", { class: "value muted", text: similarity.toFixed(2) }));
  }

  // --- what the model can do, and examples ---------------------------------------------------------------------------

  /** Reserve the place of this many names, and show empty rows in it until there is an image. */
  function keepPlace(rows) {
    $("bars").style.setProperty("--rows", rows);
    if (image) return;
    $("bars").replaceChildren(...Array.from({ length: rows }, () => make("li", { "aria-hidden": "true", class: "empty row" }, make("span", { class: "track" }))));
  }

  async function describe() {
    const { can, examples, labels, multilabel } = shared.card;
    $("promise-box").hidden = can.promise !== null;
    keepPlace(multilabel ? Math.min(MANY, labels) : TOP);
    const reads = can.ask_text === null;
    $("ask-name").placeholder = reads ? "a label, or a sentence of your own" : "a label";
    $("ask-note").textContent = reads ? "This model reads sentences: describe what you see, or expect." : "";
    $("near-note").textContent = can.retrieve ?? "";
    $("find-form").hidden = !reads || can.retrieve !== null;
    if (can.retrieve === null && !image) $("near").replaceChildren(...Array.from({ length: NEAR }, emptyNear));
    if (can.retrieve === null && image) near(asking.signal); // it was given before the card was there
    if (can.explain !== null) {
      for (const id of ["heat-on", "heat-strength", "heat-not"]) $(id).disabled = true;
      heatNote(can.explain);
    }
    if (!examples?.length || $("examples").children.length) return;
    $("examples").hidden = false;
    $("examples").style.setProperty("--columns", examples.length > 8 ? Math.ceil(examples.length / 2) : Math.max(6, examples.length));
    $("examples").replaceChildren(...examples.map(({ name }) => make("button", { type: "button", title: name, "aria-label": `Example: ${name}` })));
    await Promise.all(examples.map(async ({ name, image: path }, i) => {
      const button = $("examples").children[i];
      const blob = await service.blob(path).catch(() => null);
      if (!blob) return button.remove();
      button.append(make("img", { src: URL.createObjectURL(blob), alt: "" }));
      button.addEventListener("click", () => receive(() => [new File([blob], name, { type: blob.type })]));
    }));
  }

  keepPlace(TOP);
  takeDrops($("stage"), $("choose"), receive);
  combobox($("ask-name"), $("ask-list"), () => shared.labels.map(({ name }) => name), ask);
  combobox($("correct-name"), $("correct-list"), learners, () => {});
  $("correct-form").addEventListener("submit", (event) => { event.preventDefault(); correct(); });
  $("correct-undo").addEventListener("click", takeBack);
  $("find-form").addEventListener("submit", (event) => { event.preventDefault(); find(); });
  $("ask-form").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
  $("promise").addEventListener("change", again);
  $("heat-on").addEventListener("change", heatSwitch);
  $("heat-not").addEventListener("change", () => follow(pinned, 0));
  $("heat-strength").addEventListener("input", () => $("heat").style.setProperty("--strength", $("heat-strength").value / 100));

  return { receive, describe, again, image: () => image };
}
