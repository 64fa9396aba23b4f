// One prompt through the real model in up to three forms, one after the other: what each says, how
// fast, in how many bytes, and how far its next-token distributions are from the file's own weights.

import { post } from "../api.js";
import { setText } from "../dom.js";
import { ttft, usualGap } from "../run.js";
import { errorText } from "../status.js";
import { percent, t } from "../texts.js";
import { generate, stop } from "./engine.js";
import { onReady } from "./ready.js";
import { showVariant, showVariants } from "./variants_view.js";

const SLOTS = ["a", "b", "c"];
// The probe looks at so many tokens of a text at most.
const MOST_JUDGED = 512;

const root = document.getElementById("variants");
const go = root.querySelector(".go");
const halt = root.querySelector(".halt");
const status = root.querySelector(".variants-status");
const prompt = root.querySelector("[data-prompt]");
const listeners = [];
let running = null; // the id of the run that is under way
let stopped = false;
let busy = false;

const select = (slot) => root.querySelector(`[data-slot="${slot}"]`);

/** `then(variants)` hears every comparison that came to its end: a list of {name, run, found}. */
export const onCompared = (then) => listeners.push(then);

/** Puts a form into a slot, adding it to the choices where it is not among them. */
export function choose(slot, name) {
  const field = select(slot);
  if (![...field.options].some((option) => option.value === name)) field.add(new Option(name, name));
  field.value = name;
}

/** Judges a form of the model on a text: the document of the probe. */
export const judge = (form, token_ids) =>
  post("/api/v1/probes/fidelity", { ...form, token_ids: token_ids.slice(0, MOST_JUDGED) });

/** The names of the chosen forms, the first of which is the one to compare with. */
function chosen() {
  const names = SLOTS.map((slot) => select(slot)?.value ?? root.dataset.reference);
  return names.filter((name, index) => name && names.indexOf(name) === index);
}

/** What a form's name means: one of weights, or one of KV caches. */
export const formOf = (name) =>
  root.dataset.kind === "kv" ? { weights: "float32", kv_cache: name } : { weights: name, kv_cache: "paged" };

const OPENING = { quantizing: "variants.quantizing", loading: "variants.loading" };

function tell(name, event) {
  if (event.type === "opening") {
    const key = OPENING[event.stage] ?? "variants.opening";
    setText(status, t(key, { name, share: percent(event.share ?? 0) }));
  } else if (event.type === "token") {
    setText(status, t("variants.running", { name, n: event.index + 1 }));
  }
}

/** The ids of the text that all forms are judged on: the prompt and what the first form said. */
const textOf = (run) => [...run.accepted.prompt_token_ids, ...run.tokens.map((token) => token.id)];

async function runOne(name) {
  const request = {
    prompt: prompt.value,
    max_tokens: Number(root.dataset.tokens),
    ...formOf(name),
  };
  return generate(request, {
    started: (id) => (running = id),
    onEvent: (event) => tell(name, event),
  });
}

/** Runs all chosen forms and judges them; what fails is said in the widget. */
async function compare() {
  if (busy) return;
  if (!prompt.value) return setText(status, t("error.empty"));
  busy = true;
  stopped = false;
  go.disabled = true;
  halt.hidden = false;
  const variants = [];
  showVariants([]);
  try {
    for (const name of chosen()) {
      setText(status, t("variants.starting", { name }));
      const run = await runOne(name);
      if (run.error) throw new Error(errorText(run.error));
      if (stopped) break;
      const variant = { name, run, ttft: ttft(run), itl: usualGap(run), found: null };
      variants.push(variant);
      showVariant(variants);
    }
    for (const variant of variants) {
      if (stopped) break;
      setText(status, t("variants.judging", { name: variant.name }));
      variant.found = await judge(formOf(variant.name), textOf(variants[0].run));
      showVariant(variants);
    }
    setText(status, t(stopped ? "variants.stopped" : "variants.done", { n: variants.length }));
    if (!stopped) for (const then of listeners) then(variants);
  } catch (error) {
    setText(status, error.message);
  } finally {
    busy = false;
    running = null;
    halt.hidden = true;
    go.disabled = go.dataset.ready !== "yes";
  }
}

go.addEventListener("click", compare);
halt.addEventListener("click", () => {
  stopped = true;
  if (running) stop(running);
});
onReady((ready) => {
  go.dataset.ready = ready ? "yes" : "no";
  go.disabled = !ready || busy;
  if (!busy) setText(status, ready ? "" : t("api.notReady"));
});

/** Compares what is chosen now, as the button does. */
export const compareNow = compare;
