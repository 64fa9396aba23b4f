// Runs of a wanted length: the reader's text, repeated and cut.

import { generate } from "./engine.js";

const known = new Map();

/** How many characters a token of this text takes, from one short run of it. */
async function charactersPerToken(text) {
  if (!known.has(text)) {
    const run = await generate({ prompt: text, max_tokens: 1 });
    if (run.error) return run;
    known.set(text, text.length / run.accepted.prompt_tokens);
  }
  return known.get(text);
}

/**
 * Runs `text`, made about `tokens` long, for exactly `answer` tokens. Gives the run, or the run that
 * failed; what it was cut to stands in `run.accepted.prompt_tokens`.
 */
export async function runSized(text, tokens, answer, options) {
  const ratio = await charactersPerToken(text);
  if (typeof ratio !== "number") return ratio;
  const wanted = Math.max(1, Math.round(tokens * ratio));
  const prompt = text.repeat(Math.ceil(wanted / text.length)).slice(0, wanted).toWellFormed();
  return generate({ prompt, max_tokens: answer, ignore_eos: true }, options);
}
