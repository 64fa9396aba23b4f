// The two phases: one prompt in time and on the roofline, and the truth beside the guess.

import { mountAnswers } from "../answers.js";
import { median, setText, sum } from "../dom.js";
import { mountRoofline } from "../roofline.js";
import { isOver, newRun, phases } from "../run.js";
import { errorText } from "../status.js";
import { changed, onPaint, store } from "../store.js";
import { mountStrip } from "../strip.js";
import { mountTable } from "../table.js";
import { sentences, t, time, times } from "../texts.js";
import { generate, stop } from "./engine.js";
import { did, guessed, say, tellTruth } from "./lesson.js";
import { facts, isReady, onReady } from "./ready.js";

const form = document.getElementById("timeline-form");
const prompt = document.getElementById("prompt");
const answer = document.getElementById("answer-tokens");
const go = document.getElementById("go");
const halt = document.getElementById("stop");
const status = document.getElementById("status");
const seen = new Set();
let running = null;

const tell = (text) => setText(status, text);

function begin() {
  if (running || !form.reportValidity()) return null;
  if (!prompt.value) {
    tell(t("error.empty"));
    prompt.focus();
    return null;
  }
  const request = { prompt: prompt.value, max_tokens: Number(answer.value), ignore_eos: true };
  store.run = newRun(request);
  store.selected = null;
  seen.clear();
  tell(t("lesson.running"));
  const over = generate(request, {
    started: (id) => (running = id),
    onEvent(event, run) {
      store.run = run;
      changed();
    },
  }).then((run) => {
    running = null;
    store.run = run;
    finish(run);
    changed();
    return run;
  });
  changed();
  return over;
}

function finish(run) {
  if (run.error) return tell(errorText({ ...run.error, context: store.facts?.max_context }));
  tell(t(`done.${run.done.finish_reason}`, { n: run.done.usage.completion_tokens }));
  if (run.tokens.length > 1) did("run");
}

/** The first token against a later one: what the guess was about. */
function reveal(run) {
  if (!run || run.error || guessed() === null) return;
  const { prefill, decode } = phases(run);
  const gap = median(decode.map((step) => step.time_ms));
  const first = sum(prefill.map((step) => step.time_ms));
  if (gap === null || !prefill.length) return;
  const n = run.accepted.prompt_tokens;
  const ratio = first / gap;
  const right = ratio < 2 ? 0 : ratio < 0.7 * n ? 1 : 2;
  const values = { n, first: time(first), gap: time(gap), ratio: times(ratio) };
  const why = ["phases.one", "phases.some", "phases.all"][right];
  tellTruth(sentences([t("phases.truth", values), t(why, { n })]), right);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  begin();
});

form.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  begin();
});

halt.addEventListener("click", () => running && stop(running));

document.getElementById("guess-run").addEventListener("click", async () => {
  if (guessed() === null) {
    say(t("phases.guess"));
    document.querySelector('input[name="guess"]').focus();
    return;
  }
  reveal(await begin());
});

/** Run and Stop share one place: whoever was on the one is on the other now. */
function paintButtons({ run }) {
  const busy = Boolean(run) && !isOver(run);
  const focused = document.activeElement;
  go.hidden = busy;
  halt.hidden = !busy;
  if (focused === go && busy) halt.focus();
  if (focused === halt && !busy) go.focus();
  document.getElementById("run").dataset.state = run?.status ?? "idle";
}

/** The reader looked at a step of each phase. */
function watch({ run, selected }) {
  const step = run?.steps[selected];
  if (!step) return;
  seen.add(step.phase === "prefill" ? "prefill" : "decode");
  if (seen.size === 2 && isOver(run)) did("steps");
}

function readFacts() {
  store.facts = facts() ?? store.facts;
}

onReady((ready) => {
  readFacts();
  go.disabled = !ready;
  document.getElementById("guess-run").disabled = !ready;
  if (!ready) tell(t("error.engine_unavailable"));
  else if (status.textContent === t("error.engine_unavailable")) tell("");
  changed();
});

for (const mount of [mountStrip, mountAnswers, mountTable]) onPaint(mount());
onPaint(paintButtons);
onPaint(watch);
// Two presses within a frame are painted once, but both steps were looked at.
document.getElementById("strip-bar").addEventListener("keydown", () => watch(store));

// The fragment is only swapped when something changed: the engine came, or the machine was measured.
document.body.addEventListener("htmx:afterSettle", ({ target }) => {
  if (target.id !== "engine" || !isReady()) return;
  readFacts();
  htmx.trigger(document.body, "engine-ready");
});

// The roof comes by itself; only then can steps be put on it.
document.body.addEventListener("htmx:afterSettle", function mounted({ target }) {
  if (target.id !== "roofline") return;
  document.body.removeEventListener("htmx:afterSettle", mounted);
  onPaint(mountRoofline());
  changed();
});
