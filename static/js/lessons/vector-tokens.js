// The prompt of the lesson on vectors as tokens, asked of the model's own tokenizer once for all of
// the lesson's widgets.

import { post } from "../api.js";

const listeners = [];
let tokens = null;
let asking = null;

/** Calls `then(tokens)` now and whenever the prompt changes; tokens are [{id, piece}]. */
export function onTokens(then) {
  listeners.push(then);
  if (tokens) then(tokens);
}

/** The tokens of the prompt; null before the first answer. */
export const currentTokens = () => tokens;

export const idsOf = (list) => list.map(({ id }) => id);

/** Tokenizes the prompt and tells the widgets. Throws a Problem, and nothing if asked anew. */
export async function tokenize(text) {
  asking?.abort();
  asking = new AbortController();
  const document = await post("/api/v1/tokenize", { text }, { signal: asking.signal });
  tokens = document.tokens.map(({ id, piece }) => ({ id, piece }));
  for (const then of listeners) then(tokens);
}

/** The id of a word as this model writes it after a space; null if it takes several tokens. */
export async function idOfWord(word) {
  const document = await post("/api/v1/tokenize", { text: ` ${word}` });
  return document.tokens.length === 1 ? document.tokens[0].id : null;
}
