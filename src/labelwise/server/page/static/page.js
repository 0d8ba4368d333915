// The page: which view is shown, what the views know together, where dropped and pasted images go.

import { connect } from "./api.js";
import { askView } from "./ask.js";
import { showCard } from "./card.js";
import { compareView } from "./compare.js";
import { $, count, showFault } from "./dom.js";
import { filesOf, offerCamera } from "./image.js";
import { teachView } from "./teach.js";
import { askToken } from "./token.js";

const VIEWS = ["ask", "compare", "teach", "model"];
const shared = { card: null, labels: [], change: 0, undo: null };
const service = connect(askToken, online);
const ask = askView(service, shared, changed, refresh);
const compare = compareView(service, shared);
const teach = teachView(service, shared, refresh);
const receivers = { ask: ask.receive, compare: (give) => compare.receive(give), teach: teach.receive };

// --- what the views know together ------------------------------------------------------------------------------------

async function readLabels() {
  const [found, card] = await Promise.all([service.json("/labels"), service.json("/card")]);
  Object.assign(shared, { card, labels: found.labels, change: found.change, undo: found.undo });
  teach.drawLabels();
  showCard(card);
  about();
}

/** Read the labels after a change made here. The image is asked about again at the same time, so the next change need not wait. */
async function refresh() {
  await readLabels();
  ask.again();
}

/** Read the labels if an answer was given under others than those shown. */
function changed(change) {
  if (change === undefined || change === shared.change) return;
  shared.change = change;
  readLabels().catch(() => {}); // the next answer tells again
}

async function start() {
  showFault($("card-fault"), null);
  try {
    await readLabels();
    for (const view of [compare, teach, ask]) view.describe();
    document.body.classList.add("ready");
  } catch (fault) {
    showFault($("card-fault"), fault, start);
    $("about").textContent = fault.message;
    if (fault.status === 401) showFault($("answer-fault"), fault, () => { showFault($("answer-fault"), null); start(); });
  }
}

function about() {
  if (!shared.card) return;
  const { title, model } = shared.card;
  $("about").textContent = `${title || model} · ${count(shared.labels.length, "label")}`;
  document.title = `${title || model} – labelwise`;
  $("model-lead").textContent = `${shared.card.method}, ${count(shared.labels.length, "label")}`;
}

function online(answers) {
  $("offline").hidden = answers;
  $("offline").textContent = answers ? "" : "The service does not answer. This page tries again every few seconds.";
  if (answers && !shared.card) start();
}

// --- views -----------------------------------------------------------------------------------------------------------

function current() {
  const name = location.hash.slice(1);
  return VIEWS.includes(name) ? name : "ask";
}

function route() {
  if (location.hash === "#main") return;
  for (const name of VIEWS) {
    $(`view-${name}`).hidden = name !== current();
    const link = document.querySelector(`nav a[href="#${name}"]`);
    if (name === current()) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  scrollTo(0, 0);
}
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
$("teach-this").addEventListener("click", () => {
  const { blob, name } = ask.image();
  teach.receive(() => [new File([blob], name, { type: blob.type })]);
});

// --- images that arrive anywhere on the page -----------------------------------------------------------------------

addEventListener("paste", (event) => {
  const files = [...(event.clipboardData?.files ?? [])];
  if (!files.length) return; // text goes where the cursor is
  event.preventDefault();
  receivers[current()]?.(() => files);
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", (event) => {
  event.preventDefault();
  receivers[current()]?.(() => filesOf(event.dataTransfer));
});

route();
offerCamera([[$("camera"), ask.receive], [$("teach-camera"), teach.receive]]);
start();
