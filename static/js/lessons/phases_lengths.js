// Two lengths and their two times: what moved since the last setting, and a run of the same here.

import { setText } from "../dom.js";
import { ttft } from "../run.js";
import { errorText } from "../status.js";
import { store } from "../store.js";
import { sentences, t, time, times } from "../texts.js";
import { did } from "./lesson.js";
import { onReady } from "./ready.js";
import { runSized } from "./sized.js";

const MOST_PROMPT = 2048; // longer ones would hold up everybody else here
const MOST_ANSWER = 256;
const form = document.getElementById("lengths-form");
const place = document.getElementById("place");
const button = document.getElementById("measure");
const status = document.getElementById("measure-status");
const result = document.getElementById("lengths-measured");
const moved = new Set();
let base = null; // the setting that the next ones are compared with
let ready = false;
let busy = false;

function read() {
  const { dataset } = document.querySelector("#forecast .predictions") ?? {};
  if (!dataset) return null;
  const number = (name) => (dataset[name] ? Number(dataset[name]) : null);
  return {
    place: dataset.place,
    prompt: number("prompt"),
    output: number("output"),
    ttft: number("ttft"),
    itl: number("itl"),
    total: number("total"),
  };
}

/** A ratio in words: how many times, or that it is the same within a twentieth. */
const factor = (now, before) =>
  Math.abs(now / before - 1) < 0.05 ? t("lengths.same") : t("lengths.times", { n: times(now / before) });

function compare() {
  const now = read();
  if (!now) return setText(document.getElementById("lengths-change"), "");
  const both = base && now.prompt !== base.prompt && now.output !== base.output;
  if (!base || base.place !== now.place || both) base = now;
  if (now.prompt === base.prompt && now.output === base.output) return;
  const which = now.prompt === base.prompt ? "output" : "prompt";
  const tokens = { from: base[which], to: now[which] };
  const words = [
    which === "prompt" ? t("lengths.prompt", tokens) : t("lengths.output", tokens),
    t("lengths.ttft", { factor: factor(now.ttft, base.ttft) }),
    now.itl !== null && base.itl !== null && t("lengths.itl", { factor: factor(now.itl, base.itl) }),
    t("lengths.total", { factor: factor(now.total, base.total) }),
  ];
  setText(document.getElementById("lengths-change"), sentences(words));
  const ratio = now[which] / base[which];
  if (ratio >= 2 || ratio <= 0.5) moved.add(which);
  if (moved.size === 2) did("alone");
}

function paint() {
  const here = place.value === "here";
  for (const part of form.querySelectorAll("[data-elsewhere]")) part.hidden = here;
  document.getElementById("lengths-measure").hidden = !here;
  button.disabled = !ready || busy;
}

function say(run, { prompt, output }) {
  if (run.error) return setText(status, errorText({ ...run.error, context: store.facts?.max_context }));
  setText(status, "");
  const gaps = run.done.itl_ms;
  const mean = gaps.reduce((total, gap) => total + gap, 0) / gaps.length;
  const values = {
    prompt: run.accepted.prompt_tokens,
    output: run.done.usage.completion_tokens,
    ttft: time(ttft(run)),
    itl: gaps.length ? time(mean) : "—",
  };
  const cut = run.accepted.prompt_tokens < 0.9 * prompt || values.output < output;
  setText(result, sentences([t("lengths.measured", values), cut && t("lengths.cut")]));
}

button.addEventListener("click", async () => {
  const text = document.getElementById("prompt").value;
  const wanted = {
    prompt: Number(document.getElementById("prompt-tokens").value),
    output: Number(document.getElementById("output-tokens").value),
  };
  if (!text) return setText(status, t("error.empty"));
  busy = true;
  paint();
  setText(status, t("lesson.running"));
  const sizes = [Math.min(MOST_PROMPT, wanted.prompt), Math.min(MOST_ANSWER, wanted.output)];
  say(await runSized(text, ...sizes), wanted);
  busy = false;
  paint();
});

// A setting that the reader left is the one that the next is compared with.
form.addEventListener("change", ({ target }) => {
  if (target === place) moved.clear();
  paint();
});
form.addEventListener("focusin", () => {
  base = read() ?? base;
});

document.body.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.id === "forecast") compare();
});

onReady((now) => {
  ready = now;
  paint();
});
