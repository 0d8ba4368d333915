// The service over HTTP: one function, errors in words, a token asked for once, and whether the service answers at all.

const KEPT = "labelwise-token";
const AGAIN = 4000; // milliseconds between two looks at a service that did not answer

/** What went wrong, in words for the person who asked; status 0 where there was no answer. */
export class Fault extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/**
 * Return the calls of the service.
 * @param askToken asks a person for the token: (message) => Promise of a token, or null where they decline
 * @param online told when the service stops answering (false) and when it answers again (true)
 */
export function connect(askToken, online) {
  let answering = true;
  let asked = null;

  function note(answers) {
    if (answers === answering) return;
    answering = answers;
    online(answers);
    if (!answers) wait();
  }

  function wait() {
    setTimeout(async () => {
      const found = await fetch("/health", { cache: "no-store" }).catch(() => null);
      if (found?.ok) note(true);
      else if (!answering) wait();
    }, AGAIN);
  }

  function token(message) {
    asked ??= askToken(message).finally(() => { asked = null; });
    return asked;
  }

  async function send(path, { query = {}, body, signal, method } = {}) {
    const kept = sessionStorage.getItem(KEPT);
    const headers = kept ? { Authorization: `Bearer ${kept}` } : {};
    if (body instanceof Blob) headers["Content-Type"] = body.type;
    else if (body && !(body instanceof FormData)) {
      headers["Content-Type"] = "application/json";
      body = JSON.stringify(body);
    }
    const search = new URLSearchParams(query).toString();
    let answer;
    try {
      answer = await fetch(search ? `${path}?${search}` : path, { method: method ?? (body ? "POST" : "GET"), headers, body, signal });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      note(false);
      throw new Fault("The service does not answer. It may have stopped, or the network is down.");
    }
    note(true);
    return { answer, kept };
  }

  async function call(path, given = {}) {
    for (;;) {
      const { answer, kept } = await send(path, given);
      if (answer.ok) return answer;
      const said = await words(answer);
      if (answer.status !== 401) throw new Fault(said, answer.status);
      if (sessionStorage.getItem(KEPT) !== kept) continue; // someone has just given another one
      const typed = await token(kept ? said : "");
      if (typed === null) throw new Fault(`${said} Try again to enter it.`, 401);
      sessionStorage.setItem(KEPT, typed);
    }
  }

  return {
    json: async (path, given) => (await call(path, given)).json(),
    blob: async (path, given) => (await call(path, given)).blob(),
  };
}

async function words(answer) {
  const found = await answer.json().catch(() => null);
  if (typeof found?.error === "string") return found.error;
  return `The service answered with ${answer.status} ${answer.statusText}`.trim() + ".";
}
