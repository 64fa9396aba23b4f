// One prompt from key press to pixel: every station's time, measured where it happens.

import { setText, sum, svg } from "../dom.js";
import { errorText } from "../status.js";
import { phases } from "../run.js";
import { percent, sentences, t, time } from "../texts.js";
import { generate } from "./engine.js";
import { did, guessed, say, tellTruth } from "./lesson.js";
import { onReady } from "./ready.js";

const form = document.getElementById("journey-form");
const prompt = document.getElementById("prompt");
const go = document.getElementById("go");
const guessRun = document.getElementById("guess-run");
const status = document.getElementById("status");
const answer = document.getElementById("answer-text");
const ENGINE = ["tokenize", "wait", "embed", "prefill", "detokenize"];
const ORDER = ["press", "out", ...ENGINE, "back", "paint"];
const BEFORE = ["press", "out", "tokenize", "wait"];
const AFTER = ["detokenize", "back", "paint"];

let pressed = performance.now(); // when the key or button went down that started a run
let busy = false;
let ready = false;

/** The last run that ended well, for the diagnosis below; null before it. */
export let lastRun = null;
const waiting = [];
/** Calls `then(run)` whenever a run has ended well. */
export const onRun = (then) => waiting.push(then);

for (const type of ["keydown", "pointerdown"]) {
  document.addEventListener(type, (event) => (pressed = event.timeStamp), { capture: true });
}

const row = (name) => document.querySelector(`[data-station="${name}"]`);

/** When the frame after this one's work is on its way to the screen. */
function painted() {
  return new Promise((resolve) => {
    requestAnimationFrame(() => {
      const channel = new MessageChannel();
      channel.port1.onmessage = () => resolve(performance.now());
      channel.port2.postMessage(null);
    });
  });
}

/** How long the first text waited for the rest of its first character. */
const held = ({ shown, arrived }) => (shown === null ? 0 : shown - arrived);

/** Milliseconds of each station; null where one was not timed. */
function stations(run, marks) {
  const { prefill } = phases(run);
  const [token] = run.tokens;
  const embed = prefill.map((step) => step.stages_ms.embed ?? null);
  const known = !embed.includes(null);
  const steps = sum(prefill.map((step) => step.time_ms));
  // What the engine counts as its own time ends with the first token.
  const trip = Math.max(0, marks.arrived - marks.sent - token.time_ms - token.detokenize_ms);
  const { tokenize_ms: tokenize } = run.accepted;
  return {
    press: Math.max(0, marks.sent - marks.pressed),
    out: trip / 2,
    tokenize,
    wait: Math.max(0, token.time_ms - tokenize - steps),
    embed: known ? sum(embed) : null,
    prefill: steps - (known ? sum(embed) : 0),
    detokenize: token.detokenize_ms + held(marks),
    back: trip / 2,
    paint: marks.painted === null ? null : marks.painted - marks.shown,
  };
}

function draw(name, from, ms, span) {
  const place = row(name);
  setText(place.querySelector("[data-time]"), ms === null ? "—" : time(ms));
  const bar = place.querySelector("[data-bar]");
  if (ms === null) return bar.replaceChildren();
  const x = (1000 * from) / span;
  // A station too short for a pixel is still there.
  const width = Math.max(2, (1000 * ms) / span);
  bar.replaceChildren(svg("rect", { x: Math.min(x, 998), y: 1, width, height: 8 }));
}

/** The decode loop's bar: a tick for each step, to the loop's own scale. */
function drawLoop(run) {
  const place = row("decode");
  const steps = phases(run).decode;
  const bar = place.querySelector("[data-bar]");
  if (!steps.length) {
    setText(place.querySelector("[data-time]"), "—");
    return bar.replaceChildren();
  }
  const from = steps[0].start_ms;
  const span = steps.at(-1).start_ms + steps.at(-1).time_ms - from;
  setText(place.querySelector("[data-time]"), time(span));
  bar.replaceChildren(
    ...steps.map((step) =>
      svg("rect", {
        x: (1000 * (step.start_ms - from)) / span,
        y: 1,
        width: Math.max(1, (1000 * step.time_ms) / span - 1),
        height: 8,
      }),
    ),
  );
}

function tell(run, spent, total) {
  const engine = sum(ENGINE.map((name) => spent[name] ?? 0));
  const silent = run.tokens.filter((token) => !token.text).length;
  const { decode } = phases(run);
  setText(
    document.getElementById("journey-words"),
    sentences([
      t("journey.words", { total: time(total), share: percent(engine / total) }),
      decode.length && t("journey.loop", { steps: decode.length, mean: time(sum(decode.map((step) => step.time_ms)) / decode.length) }),
      t(silent ? "journey.silent" : "journey.whole", { silent }),
    ]),
  );
}

/** Which part of the way took longest: what the guess was about. */
function reveal(spent, total, wait) {
  if (guessed() === null) return;
  const add = (names) => sum(names.map((name) => spent[name] ?? 0));
  // A character that is not whole yet waits for the model.
  const parts = [add(BEFORE), add(["embed", "prefill"]) + wait, add(AFTER) - wait];
  const right = parts.indexOf(Math.max(...parts));
  const [before, model, after] = parts.map(time);
  tellTruth(t("journey.truth", { total: time(total), before, model, after }), right);
}

function show(run, marks) {
  const spent = stations(run, marks);
  const total = sum(ORDER.map((name) => spent[name] ?? 0));
  let at = 0;
  for (const name of ORDER) {
    draw(name, at, spent[name], total);
    at += spent[name] ?? 0;
  }
  drawLoop(run);
  tell(run, spent, total);
  reveal(spent, total, held(marks));
  lastRun = run;
  did("journey");
  for (const then of waiting) then(run);
}

async function begin() {
  if (busy || !ready || !form.reportValidity()) return;
  if (!prompt.value) {
    setText(status, t("error.empty"));
    return prompt.focus();
  }
  busy = true;
  paint();
  setText(status, t("lesson.running"));
  setText(answer, "");
  const marks = { pressed, sent: null, arrived: null, shown: null, painted: null };
  let first = null;
  const request = {
    prompt: prompt.value,
    max_tokens: Number(document.getElementById("answer-tokens").value),
    ignore_eos: true,
  };
  const over = generate(request, {
    onEvent(event) {
      if (event.type !== "token") return;
      marks.arrived ??= performance.now();
      answer.textContent += event.text;
      // Only what can be seen is painted: a token inside a character has no text yet.
      if (!event.text) return;
      marks.shown ??= performance.now();
      first ??= painted().then((when) => (marks.painted = when));
    },
  });
  marks.sent = performance.now();
  const run = await over;
  busy = false;
  paint();
  if (run.error) return setText(status, errorText(run.error));
  answer.textContent += run.done.tail;
  await first;
  setText(status, t(`done.${run.done.finish_reason}`, { n: run.done.usage.completion_tokens }));
  show(run, marks);
}

function paint() {
  go.disabled = guessRun.disabled = busy || !ready;
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
guessRun.addEventListener("click", () => {
  if (guessed() !== null) return begin();
  say(t("journey.guess"));
  document.querySelector('input[name="guess"]').focus();
});

onReady((now) => {
  ready = now;
  if (!now) setText(status, t("error.engine_unavailable"));
  else if (!busy) setText(status, "");
  paint();
});
