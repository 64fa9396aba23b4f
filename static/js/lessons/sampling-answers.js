// Whole answers on the real engine: one that always takes the likeliest token, and three that are
// drawn under the reader's settings. Every token that was not the likeliest shows it.

import { setText } from "../dom.js";
import { errorText } from "../status.js";
import { percent, t, visible } from "../texts.js";
import { generate } from "./engine.js";
import { did, say } from "./lesson.js";
import { onReady } from "./ready.js";
import { tok } from "./tok.js";

const TOKENS = 24;

const section = document.getElementById("answers");
const part = (name) => section.querySelector(`[data-${name}]`);
const write = part("write");
const seed = document.getElementById("sampling-seed");
const prompt = document.getElementById("sampling-prompt");

function chip(token) {
  const likeliest = token.top_logprobs[0];
  const other = likeliest && likeliest.id !== token.id;
  const p = token.logprob === null ? "—" : percent(Math.exp(token.logprob));
  const title = other ? t("sampling.instead", { p, piece: visible(likeliest.piece) }) : p;
  return tok(token.text || token.piece, other ? "other" : "taken", title);
}

function paint(row, run) {
  row.querySelector(".answer").replaceChildren(...run.tokens.map(chip));
}

/** At which token, counted from 1, the answers are no longer all the same; 0 if they never part. */
function parting(runs) {
  const ids = runs.map((run) => run.tokens.map((token) => token.id));
  const longest = Math.max(...ids.map((list) => list.length));
  for (let i = 0; i < longest; i++) if (new Set(ids.map((list) => list[i])).size > 1) return i + 1;
  return 0;
}

async function answer(row, request) {
  const run = await generate(request, { onEvent: (_, now) => paint(row, now) });
  if (run.error) setText(row.querySelector(".answer"), errorText(run.error));
  return run;
}

/** `settings()` are the sliders' values, read when the answers are asked for. */
export function mountAnswers(settings) {
  const rows = [...part("rows").children];

  async function writeAll() {
    if (!prompt.value.trim() || !seed.reportValidity()) return;
    const { temperature, topK, topP, minP } = settings();
    const same = { prompt: prompt.value, max_tokens: TOKENS, top_logprobs: 1 };
    const drawn = { ...same, temperature, top_k: topK, top_p: topP, min_p: minP };
    const first = Number(seed.value);
    const requests = [same, ...[0, 1, 2].map((i) => ({ ...drawn, seed: first + i }))];
    write.disabled = true;
    part("rows").hidden = false;
    setText(part("parting"), t("lesson.running"));
    rows.forEach((row, i) => {
      const name = i ? t("sampling.seed", { seed: first + i - 1 }) : t("sampling.greedy.row");
      setText(row.querySelector(".name"), name);
    });
    const runs = await Promise.all(requests.map((request, i) => answer(rows[i], request)));
    write.disabled = false;
    if (runs.some((run) => run.error)) return setText(part("parting"), t("sampling.failed"));
    const at = parting(runs.slice(1));
    const words = at ? t("sampling.part", { n: at }) : t("sampling.together");
    setText(part("parting"), words);
    say(words);
    did("answers");
  }

  onReady((ready) => {
    write.disabled = !ready;
  });
  write.addEventListener("click", writeAll);
}
