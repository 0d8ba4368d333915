// The page of labelling: a question, its answer, the next question. Every answer is on disk before the next question is shown.

import { connect } from "./api.js";
import { $, count, make, percent, say, showFault } from "./dom.js";
import { askToken } from "./token.js";

const browser = (sessionStorage.labelwiseBrowser ??= crypto.getRandomValues(new Uint32Array(2)).join("-"));
const person = (localStorage.labelwisePerson ??= browser);
const service = connect(askToken, online);
const now = { question: null, state: null, odd: new Set(), began: 0, busy: false, checking: false, focus: 0, open: null, wrong: new Set() };

// --- talking to the service --------------------------------------------------------------------------------------

function online(answers) {
  $("offline").hidden = answers;
  $("offline").textContent = "The service does not answer. Saved answers are safe; start the service again.";
}

async function send(path, body) {
  if (now.busy) return;
  now.busy = true;
  showFault($("fault"), null);
  try {
    const answer = await service.json(path, { body: { browser, person, ...body } });
    now.state = answer.state;
    now.question = answer.question;
    draw();
    return answer;
  } catch (fault) {
    showFault($("fault"), fault, () => send(path, body));
  } finally {
    now.busy = false;
  }
}

const next = () => send("/question", { check: now.checking });

function act(actions) {
  const seconds = Math.min(600, (performance.now() - now.began) / 1000);
  const { form } = now.question;
  return send("/actions", { check: now.checking, actions: actions.map((one, i) => ({ ...one, form, seconds: i ? 0 : seconds })) });
}

async function undo() {
  const answer = await send("/undo", {});
  if (answer) say(answer.undone ? "Undone." : "There is nothing to undo.");
}

// --- answers -----------------------------------------------------------------------------------------------------

function fits() {
  return now.question.rows.filter((row) => !now.odd.has(row));
}

function giveName(label) {
  const name = label.trim();
  if (!now.question || !name) return;
  const rows = fits();
  if (!rows.length) return say("Every image is marked. Press s to split the sheet.");
  const odd = [...now.odd].filter((row) => now.question.rows.includes(row));
  act([...(odd.length ? [{ kind: "not", rows: odd, label: name }] : []), { kind: "name", rows, label: name }]);
}

const answers = {
  no: () => act([{ kind: "not", rows: now.question.rows, label: now.question.suggestions[0][0] }]),
  yes: () => giveName(now.question.suggestions[0][0]),
  none: () => act([{ kind: "unknown", rows: fits() }]),
  skip: () => act([{ kind: "skip", rows: now.question.rows }]),
  split: () => act([{ kind: "split", rows: now.question.rows }]),
  undo,
};
const TOOLS = [["none", "0", "None of these"], ["split", "s", "Not one group"], ["skip", "space", "Skip"], ["undo", "u", "Undo"]];

// --- drawing -----------------------------------------------------------------------------------------------------

async function show(image, row, large) {
  const path = `/gallery/${row}${large ? "?large" : ""}`;
  try {
    image.src = sessionStorage.getItem("labelwise-token") ? URL.createObjectURL(await service.blob(path)) : path;
  } catch { image.alt = "This image cannot be shown."; }
}

function tile(row, alt, large, pressed, onclick) {
  const image = make("img", { alt, draggable: "false" });
  show(image, row, large);
  return make("button", { type: "button", class: "tile", "aria-pressed": pressed === null ? null : String(pressed), onclick }, image);
}

function drawSheet() {
  const { question } = now;
  const rows = question?.rows ?? [];
  const alone = rows.length === 1;
  const example = question?.example ?? null;
  $("sheet").className = `sheet${alone ? (example === null ? " one" : " two") : ""}`;
  $("sheet").replaceChildren(...rows.map((row, i) => make("li", {}, tile(row, question.files[i], alone, alone ? null : now.odd.has(row), () => mark(row)))));
  if (alone && example !== null) {
    $("sheet").append(make("li", {}, tile(example, "", true, null, null), make("figcaption", { text: `This is ${question.suggestions[0][0]}` })));
  }
  $("file").textContent = alone ? question.files[0] : "";
}

function mark(row) {
  if (!now.question || now.question.rows.length === 1) return;
  now.odd.has(row) ? now.odd.delete(row) : now.odd.add(row);
  const place = now.question.rows.indexOf(row);
  $("sheet").children[place].firstChild.setAttribute("aria-pressed", String(now.odd.has(row)));
}

function choice(key, text, share, onclick, main = false) {
  return make("button", { type: "button", class: `button${main ? " main" : ""}`, onclick },
    make("kbd", { text: key }), make("span", { text }), share === null ? null : make("span", { class: "share", text: share }));
}

function listed() {
  const { question, state } = now;
  if (question.suggestions.length) return question.suggestions;
  return state.labels.slice(0, 9).map((one) => [one.name, null]); // of a check: the guess stays hidden
}

function draw() {
  const { question, state } = now;
  now.odd.clear();
  now.began = performance.now();
  now.focus = 0;
  if (state.progress.sure || !state.progress.missing) now.checking = false;
  drawProgress(state);
  drawSheet();
  $("name").value = "";
  $("name").blur();
  hideNames();
  $("name-form").hidden = !question;
  $("choices").replaceChildren();
  $("tools").replaceChildren();
  if (!question) {
    $("question").textContent = "Every image has an answer";
    $("hint").textContent = "Export the labels, or look through them.";
    $("tools").append(choice("u", "Undo", null, undo));
    return;
  }
  $("question").textContent = question.words;
  const hints = { sheet: "Tap images that do not belong, then name the rest.", check: `A random image, to measure the guesses.${now.checking ? ` ${count(state.progress.missing, "more image")} before guesses count.` : ""}`,
    yes: "The image on the right already has an answer.", what: "" };
  $("hint").textContent = hints[question.form] ?? "";
  if (question.form === "yes") {
    $("choices").append(choice("y", "Yes", null, answers.yes, true), choice("n", "No", null, answers.no));
  }
  const known = question.form === "yes" ? listed().slice(1) : listed();
  known.forEach(([name, share], i) => $("choices").append(choice(String(i + 1), name, share === null ? null : percent(share), () => giveName(name))));
  for (const [what, key, text] of TOOLS) {
    if (what !== "split" || question.form === "sheet") $("tools").append(make("button", { type: "button", class: "button small", onclick: answers[what] }, make("kbd", { text: key }), make("span", { text })));
  }
  $("keys").textContent = "Keys: 1 to 9, y and n, / to type, arrows and x to mark, u to undo.";
  say(question.words);
}

function drawProgress(state) {
  const { progress: p } = state;
  $("progress").textContent = p.words;
  $("meter-person").style.width = `${(100 * p.answered) / p.images}%`;
  $("meter-guess").style.width = `${(100 * p.sure) / p.images}%`;
  $("counts").textContent = `${count(p.answered, "image")} answered, ${p.sure.toLocaleString("en")} confident guesses, ${p.images.toLocaleString("en")} in all; ${count(state.actions, "action")}.`;
  $("about").textContent = `${count(p.images, "image")} · ${count(state.labels.length, "label")}`;
  $("all-names").replaceChildren(...state.labels.map((one) => make("option", { value: one.name })));
}

// --- labels and export -------------------------------------------------------------------------------------------

function drawLabels() {
  const listed = now.state.labels.map((one) => choice(String(one.answered + one.guessed), one.name, null, () => browse({ of: "label", label: one.name })));
  if (now.state.unknown) listed.push(choice(String(now.state.unknown), "None of these", null, () => browse({ of: "unknown" })));
  $("label-list").replaceChildren(...listed.map((one) => make("li", {}, one)));
}

async function browse(query) {
  showFault($("browse-fault"), null);
  try {
    const found = await service.json("/images", { query });
    now.open = query;
    now.wrong.clear();
    $("browse").hidden = false;
    $("browse-title").textContent = `${query.label ?? "None of these"}: ${count(found.count, "image")}`;
    for (const form of ["merge-form", "fix-form"]) $(form).hidden = query.of === "unknown";
    $("browse-images").replaceChildren(...(found.images ?? []).map((one) => markable(one.row, one.source, one.source === "guess" ? percent(one.probability) : "answered")));
    $("browse-groups").replaceChildren(...(found.groups ?? []).flatMap(drawGroup));
  } catch (fault) {
    showFault($("browse-fault"), fault, () => browse(query));
  }
}

function markable(row, alt, caption) {
  const button = tile(row, alt, false, false, () => {
    now.wrong.has(row) ? now.wrong.delete(row) : now.wrong.add(row);
    button.setAttribute("aria-pressed", String(now.wrong.has(row)));
  });
  return make("li", {}, button, caption && make("figcaption", { text: caption }));
}

// Look-alikes of none of the labels become a label in one click; marked images stay out.
function drawGroup(group) {
  const field = make("input", { type: "text", list: "all-names", autocomplete: "off", maxlength: "200", placeholder: "These are", "aria-label": "Label of the group" });
  const named = (label) => {
    const rows = group.rows.filter((row) => !now.wrong.has(row));
    if (!label.trim() || !rows.length) return showFault($("browse-fault"), new Error("Type a label, and leave an image unmarked."));
    change([{ kind: "name", rows, label: label.trim() }]);
  };
  const form = make("form", { class: "line", onsubmit: (event) => { event.preventDefault(); named(field.value); } }, field, make("button", { class: "button main", type: "submit", text: "Save" }));
  return [make("h3", { text: `${count(group.rows.length, "image")} that look alike` }),
    make("ul", { class: "sheet", "aria-label": "Images that look alike" }, ...group.rows.map((row) => markable(row, "", ""))),
    make("p", { class: "tools" }, ...group.words.map((word) => make("button", { type: "button", class: "button", text: word, onclick: () => named(word) }))), form];
}

async function change(actions) {
  showFault($("browse-fault"), null);
  try {
    const answer = await service.json("/actions", { body: { browser, person, actions } });
    Object.assign(now, { state: answer.state, question: answer.question });
    draw();
    drawLabels();
    $("browse").hidden = true;
  } catch (fault) {
    showFault($("browse-fault"), fault);
  }
}

$("fix-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const label = $("fix-name").value.trim();
  const rows = [...now.wrong];
  if (!label || !rows.length) return showFault($("browse-fault"), new Error("Mark images, and type their label."));
  $("fix-name").value = "";
  change([{ kind: "name", rows, label }]);
});
$("merge-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const into = $("merge-name").value.trim();
  $("merge-name").value = "";
  if (into) change([{ kind: "merge", label: now.open.label, into }]);
});

const WORDS = { folders: "Folders of links", copies: "Folders of copies", csv: "CSV table", parquet: "Parquet table", imagefolder: "Hugging Face imagefolder",
  coco: "COCO", yolo: "YOLO classification", labelstudio: "Label Studio" };

function drawForms() {
  const { sure, missing } = now.state.progress;
  $("export-lead").textContent = sure ? `Your answers, and ${sure.toLocaleString("en")} guesses that random images show to be right 95 times of 100. Photos stay where they are.`
    : "Your answers. Photos stay where they are.";
  $("missing").hidden = Boolean(sure) || !missing;
  $("missing-text").textContent = missing ? `Guesses are not exported yet: it takes at least ${count(missing, "more random image")} to know that they are right.` : "";
  $("forms").replaceChildren(...now.state.exports.map((form) => make("button", { type: "button", class: "button", text: WORDS[form] ?? form, onclick: () => write(form) })));
}

$("check").addEventListener("click", async () => {
  now.checking = true; // until enough of them are answered, or another view is shown
  await next();
  location.hash = "#ask";
});

async function write(format) {
  showFault($("export-fault"), null);
  $("written").textContent = "Writing";
  try {
    const found = await service.json("/export", { body: { format } });
    $("written").textContent = `${count(found.images, "image")} written to ${found.written}`;
  } catch (fault) {
    $("written").textContent = "";
    showFault($("export-fault"), fault, () => write(format));
  }
}

// --- keys, search and views --------------------------------------------------------------------------------------

$("name-form").addEventListener("submit", (event) => {
  event.preventDefault();
  giveName($("name").value);
});
$("name").addEventListener("input", suggest);
$("name").addEventListener("blur", () => setTimeout(hideNames, 150));

function suggest() {
  const typed = $("name").value.trim().toLowerCase();
  const names = (now.state?.labels ?? []).map((one) => one.name).filter((name) => typed && name.toLowerCase().includes(typed)).slice(0, 8);
  $("name-list").replaceChildren(...names.map((name) => make("li", { role: "option", text: name, onmousedown: () => giveName(name) })));
  $("name-list").hidden = !names.length;
  $("name").setAttribute("aria-expanded", String(Boolean(names.length)));
}

function hideNames() {
  $("name-list").hidden = true;
  $("name").setAttribute("aria-expanded", "false");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("view-ask").hidden || document.querySelector("dialog[open]")) return;
  if (event.target.matches("input, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const { question } = now;
  if (event.key === "u") return undo();
  if (!question) return;
  const known = question.form === "yes" ? listed().slice(1) : listed();
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns() }[event.key];
  if (event.key >= "1" && event.key <= "9") { if (known[event.key - 1]) giveName(known[event.key - 1][0]); }
  else if (event.key === "y" && question.form === "yes") answers.yes();
  else if (event.key === "n" && question.form === "yes") answers.no();
  else if (event.key === "0") answers.none();
  else if (event.key === "s" && question.form === "sheet") answers.split();
  else if (event.key === " " && !event.target.matches("button")) answers.skip();
  else if (event.key === "x" && question.rows.length > 1) mark(question.rows[now.focus]);
  else if (event.key === "/") $("name").focus();
  else if (step && question.rows.length > 1) {
    now.focus = Math.max(0, Math.min(question.rows.length - 1, now.focus + step));
    $("sheet").children[now.focus].firstChild.focus();
  } else return;
  event.preventDefault();
});

function columns() {
  return getComputedStyle($("sheet")).gridTemplateColumns.split(" ").length;
}

function view() {
  const wanted = ["ask", "labels", "export"].includes(location.hash.slice(1)) ? location.hash.slice(1) : "ask";
  for (const name of ["ask", "labels", "export"]) $(`view-${name}`).hidden = name !== wanted;
  for (const link of document.querySelectorAll("nav a")) link.toggleAttribute("aria-current", link.hash === `#${wanted}`);
  if (!now.state) return;
  if (wanted !== "ask") now.checking = false;
  if (wanted === "labels") drawLabels();
  if (wanted === "export") drawForms();
}

addEventListener("hashchange", view);
next().then(() => { view(); document.body.classList.add("ready"); });
