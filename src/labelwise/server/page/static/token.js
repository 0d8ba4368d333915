// The dialog that asks for a token, the same on every page.

import { $, make } from "./dom.js";

document.body.append(make("dialog", { id: "token-dialog", "aria-labelledby": "token-title" },
  make("form", { id: "token-form", method: "dialog" },
    make("h2", { id: "token-title", text: "This service needs a token" }),
    make("p", { class: "muted", text: "Ask whoever runs the service. The token is stored until you close this tab." }),
    make("label", { class: "field" }, make("span", { text: "Token" }), make("input", { id: "token", type: "password", autocomplete: "off" })),
    make("p", { id: "token-fault", class: "note bad", role: "alert" }),
    make("div", { class: "tools" },
      make("button", { class: "button main", type: "submit", text: "Continue" }),
      make("button", { class: "button", type: "button", text: "Cancel", onclick: () => $("token-dialog").close() })))));

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("token").value) $("token-dialog").close("given");
  else $("token-fault").textContent = "Type the token first.";
});

/** Ask for the token, with a message about the one before; resolves to null where the person declines. */
export function askToken(message) {
  const dialog = $("token-dialog");
  $("token").value = "";
  $("token-fault").textContent = message;
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => done(dialog.returnValue === "given" ? $("token").value : null), { once: true });
  });
}
