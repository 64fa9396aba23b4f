// One text inside the model, for all widgets of a page: its tokens, and answers about it.

import { post, Problem } from "../api.js";
import { setText } from "../dom.js";
import { t } from "../texts.js";
import { say } from "./lesson.js";
import { onReady } from "./ready.js";

const field = document.getElementById("prompt");
const button = document.getElementById("look");
const status = document.getElementById("look-status");
const listeners = [];

/** The text that the page shows now; null before the first. `pieces`: its tokens as texts. */
let current = null;
let reading = null;

export const text = () => current;

/** Calls `then(text)` for the text that is there, and for every new one. */
export function onText(then) {
  listeners.push(then);
  if (current) then(current);
}

/**
 * A widget's way to ask about the text: `ask(kind, arguments)` gives the answer, or null where a
 * newer question of the same widget took its place or where none came, which `problem` then says.
 */
export function asker(problem) {
  let newest = null;
  return async (kind, body = {}) => {
    newest?.abort();
    const mine = new AbortController();
    newest = mine;
    const question = "text" in body ? body : { token_ids: current.ids, ...body };
    try {
      const answer = await post(`/api/v1/probes/${kind}`, question, { signal: mine.signal });
      setText(problem, "");
      return mine.signal.aborted ? null : answer;
    } catch (error) {
      if (mine.signal.aborted) return null;
      if (!(error instanceof Problem)) throw error;
      setText(problem, error.message);
      return null;
    }
  };
}

/** Reads the reader's text with a probe of `kind`; its answer goes along as `answer`. */
export function mountText(kind) {
  const ask = asker(status);

  async function read() {
    const wanted = field.value;
    if (!wanted.trim()) return tell(status, t("lesson.empty"));
    if (reading === wanted) return;
    reading = wanted;
    setText(status, t("inside.reading"));
    const answer = await ask(kind, { text: wanted });
    if (reading === wanted) reading = null;
    if (!answer) return;
    const ids = answer.tokens.map(({ id }) => id);
    current = { ids, pieces: answer.tokens.map(({ piece }) => piece), answer };
    setText(status, t("inside.read", { n: ids.length }));
    for (const then of listeners) then(current);
  }

  button.addEventListener("click", read);
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) read();
  });
  onReady((ready) => {
    button.disabled = !ready;
    if (ready && !current) read();
    else if (!ready) setText(status, t("inside.waiting"));
    if (ready && current) setText(status, t("inside.read", { n: current.ids.length }));
  });
}

/** Says a sentence where it is seen, and to a screen reader. */
export function tell(node, sentence) {
  setText(node, sentence);
  say(sentence);
}
