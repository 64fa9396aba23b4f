// The lesson on quantization: its guess, measured on the reader's own prompt, and its tasks.

import { setText } from "../dom.js";
import { errorText } from "../status.js";
import { percent, t } from "../texts.js";
import { generate } from "./engine.js";
import { did, onGuess, tellTruth } from "./lesson.js";
import { isReady, onReady } from "./ready.js";
import { formOf, judge, onCompared } from "./variants.js";

const ANSWER_TOKENS = 32;
const SHARED = ["int4-tensor", "int4-g32"];
// Below so many first choices in common, a text falls apart; above so many it hardly changes.
const APART = 0.5;
const NEARLY_ALL = 0.9;

const button = document.getElementById("measure-scales");
const status = document.getElementById("measure-status");
const prompt = document.getElementById("variants-prompt");
let guessed = false;
let busy = false;

/** Which choice was right, by the share of first choices that one scale a matrix keeps. */
const rightChoice = (share) => (share >= NEARLY_ALL ? 0 : share >= APART ? 1 : 2);

async function measure() {
  busy = true;
  enable();
  try {
    setText(status, t("scales.writing"));
    const run = await generate({ prompt: prompt.value, max_tokens: ANSWER_TOKENS, ...formOf("float32") });
    if (run.error) throw new Error(errorText(run.error));
    const ids = [...run.accepted.prompt_token_ids, ...run.tokens.map((token) => token.id)];
    const found = [];
    for (const name of SHARED) {
      setText(status, t("scales.judging", { name }));
      found.push(await judge(formOf(name), ids));
    }
    const [tensor, group] = found.map((one) => one.top1_agreement);
    setText(status, "");
    const values = { n: ids.length, tensor: percent(tensor), group: percent(group) };
    tellTruth(t("scales.truth", values), rightChoice(tensor));
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
  if (variants.some(({ name }) => name.startsWith("int4"))) did("weights");
});

// The table of sizes is drawn by the server; it is done once the reader has chosen a model.
const sizes = document.getElementById("sizes-form");
sizes.addEventListener("input", () => (sizes.dataset.turned = "yes"));
document.body.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.id === "sizes-answer" && sizes.dataset.turned) did("sizes");
});
