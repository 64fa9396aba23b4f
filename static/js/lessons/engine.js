// The real engine for a lesson: prompts go out over one websocket, their events come back as runs.

import { MAX_PROMPT_CHARS, promptProblem } from "../prompt.js";
import { isOver, newRun, take } from "../run.js";
import { Socket } from "../socket.js";
import { t, whole } from "../texts.js";

const runs = new Map();
const unsent = [];

const socket = new Socket(document.getElementById("texts").dataset.socket, {
  open() {
    for (const { request } of unsent.splice(0)) socket.send(request);
  },
  event(event) {
    const entry = runs.get(event.request_id);
    if (!entry) return;
    take(entry.run, event);
    entry.onEvent?.(event, entry.run);
    if (!isOver(entry.run)) return;
    runs.delete(event.request_id);
    entry.resolve(entry.run);
  },
  lost: loseAll,
});

function loseAll() {
  for (const [id, entry] of runs) {
    take(entry.run, { type: "error", code: "connection", message: t("error.connection") });
    runs.delete(id);
    entry.resolve(entry.run);
  }
  unsent.length = 0;
}

// The connection ends with the page; one that comes back from the browser's cache starts anew.
addEventListener("pagehide", loseAll);

/**
 * Runs a prompt on the engine. `request` has the fields of the protocol's `generate`, without type
 * and id; `onEvent(event, run)` hears every event. The promise gives the run when it is over:
 * `run.done`, or `run.error` with `code` and `message`; what the server would not take is not sent.
 * `started(id)` hears the id, for `stop`.
 */
export function generate(request, { onEvent, started } = {}) {
  const request_id = crypto.randomUUID?.() ?? `r${Date.now()}${Math.random().toString(36).slice(2)}`;
  const full = { type: "generate", request_id, ...request };
  const run = newRun({ ...full, request_id });
  run.id = request_id;
  const code = promptProblem(full);
  if (code) {
    const event = { type: "error", code, message: "", context: whole(MAX_PROMPT_CHARS) };
    take(run, event);
    onEvent?.(event, run);
    return Promise.resolve(run);
  }
  return new Promise((resolve) => {
    runs.set(request_id, { run, onEvent, resolve });
    started?.(request_id);
    if (socket.ready) socket.send(full);
    else {
      unsent.push({ request: full });
      socket.open();
    }
  });
}

/** Ends a run early; its promise gives what there is, with finish reason `abort`. */
export const stop = (request_id) => socket.send({ type: "abort", request_id });

socket.open();
