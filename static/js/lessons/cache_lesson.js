// The lesson on smaller caches: its guess, measured on the reader's own prompt, and its tasks.

import { setText } from "../dom.js";
import { errorText } from "../status.js";
import { significant, t } from "../texts.js";
import { generate } from "./engine.js";
import { did, onGuess, tellTruth } from "./lesson.js";
import { isReady, onReady } from "./ready.js";
import { formOf, judge, onCompared } from "./variants.js";

const WINDOW = 16;
const SINKS = 4;
const ANSWER_TOKENS = 48;
const [HARDLY, REPAIRS, WORSE] = [0, 1, 2];

const button = document.getElementById("measure-sinks");
const status = document.getElementById("measure-status");
const prompt = document.getElementById("variants-prompt");
let guessed = false;
let busy = false;

/** Which choice was right: how much of the window's damage the first positions take away. */
function rightChoice(without, with_) {
  if (with_ > without) return WORSE;
  return with_ < without / 2 ? REPAIRS : HARDLY;
}

async function measure() {
  busy = true;
  enable();
  try {
    setText(status, t("sinks.writing"));
    const run = await generate({ prompt: prompt.value, max_tokens: ANSWER_TOKENS, ...formOf("paged") });
    if (run.error) throw new Error(errorText(run.error));
    const ids = [...run.accepted.prompt_token_ids, ...run.tokens.map((token) => token.id)];
    if (ids.length < 2 * WINDOW) throw new Error(t("sinks.short", { n: 2 * WINDOW }));
    setText(status, t("sinks.judging"));
    const without = await judge(formOf(`paged-window-${WINDOW}`), ids);
    const with_ = await judge(formOf(`paged-window-${WINDOW}-sinks-${SINKS}`), ids);
    const values = {
      n: ids.length,
      without: significant(without.mean_kl),
      with: significant(with_.mean_kl),
      sinks: SINKS,
    };
    setText(status, "");
    tellTruth(t("sinks.truth", values), rightChoice(without.mean_kl, with_.mean_kl));
  } catch (error) {
    setText(status, error.message);
  } finally {
    busy = false;
    enable();
  }
}

function enable() {
  button.disabled = !guessed || busy || !isReady();
}

onGuess(() => {
  guessed = true;
  enable();
});
onReady((ready) => {
  enable();
  setText(status, ready ? "" : t("api.notReady"));
});
button.addEventListener("click", measure);

onCompared((variants) => {
  if (variants.length > 1 && variants.some(({ name }) => name.includes("int"))) did("quantized");
});

// Pictures that the server draws: each is done once the reader has turned its knob.
document.body.addEventListener("htmx:afterSettle", ({ target }) => {
  const turned = (id) => document.getElementById(id).dataset.turned;
  if (target.id === "heads-answer" && turned("heads-form")) did("heads");
  if (target.id === "deepseek-answer" && turned("deepseek-form")) {
    // The context at which V4-Pro's token becomes the cheaper one stands in the answer.
    const { crossover } = target.querySelector("[data-crossover]").dataset;
    const context = 2 ** Number(document.getElementById("context").value);
    if (crossover && context < Number(crossover)) did("million");
  }
});

for (const id of ["heads-form", "deepseek-form"]) {
  const form = document.getElementById(id);
  form.addEventListener("input", () => (form.dataset.turned = "yes"));
}
