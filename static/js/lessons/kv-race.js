// The same prompt twice on the engine, with the KV cache and without: two strips to one scale, the
// curves of their totals, and whether both wrote the same.

import { el, setText, svg } from "../dom.js";
import { errorText } from "../status.js";
import { significant, t, time, times, visible, whole } from "../texts.js";
import { needEngine } from "./buttons.js";
import { drawCurves } from "./curves.js";
import { generate, stop } from "./engine.js";
import { did, guessed, onGuess, say, tellTruth } from "./lesson.js";
import { facts } from "./ready.js";

const section = document.getElementById("race");
const part = (name) => section.querySelector(`[data-${name}]`);
const button = document.getElementById("race-go");
const note = document.getElementById("race-wait");
const KINDS = ["paged", "off"];
const FACTOR = 5;
/** Where the guess's choices end: less than twice, up to five times, more. */
const CHOICES = [2, FACTOR];
let runs = {};
let running = null;

const update = needEngine([button], note, () => running !== null || guessed() !== null);
onGuess(update);

/** Milliseconds of computing up to each token. */
function totals(run) {
  let sum = 0;
  return (run?.steps ?? []).map((step) => (sum += step.time_ms));
}

/** The first number of tokens from which on `slow` stayed at FACTOR times `fast`; null: none. */
function passing(fast, slow) {
  const count = Math.min(fast.length, slow.length);
  let at = null;
  for (let i = 0; i < count; i++) {
    if (slow[i] < FACTOR * fast[i]) at = null;
    else at ??= i + 1;
  }
  return at;
}

function paintRow(kind, end) {
  const row = section.querySelector(`[data-row="${kind}"]`);
  const picture = row.querySelector("svg");
  const run = runs[kind];
  picture.setAttribute("viewBox", `0 0 ${end} 10`);
  let start = 0;
  const blocks = (run?.steps ?? []).map((step) => {
    const at = start;
    start += step.time_ms;
    const gap = Math.min(step.time_ms * 0.12, end / 400);
    return svg("rect", {
      class: step.phase,
      x: at,
      y: 0,
      width: Math.max(step.time_ms - gap, step.time_ms * 0.5),
      height: 10,
    });
  });
  picture.replaceChildren(...blocks);
  const values = { n: run?.tokens.length ?? 0, time: time(start) };
  setText(row.querySelector("[data-told]"), run ? t("race.row", values) : "");
}

function paintCurves(fast, slow) {
  const points = (list) => list.map((ms, i) => [i + 1, ms / 1000]);
  const at = passing(fast, slow);
  drawCurves(
    part("curves"),
    [
      { name: t("race.off"), className: "recompute", points: points(slow) },
      { name: t("race.on"), className: "decode", points: points(fast) },
    ],
    { x: t("race.tokens"), y: t("race.seconds"), xTick: whole, yTick: significantTick },
    at === null ? null : { x: at, text: t("race.passes.mark", { n: at }) },
  );
}

const significantTick = (value) => (value === 0 ? "0" : String(Number(value.toPrecision(2))));

function paintTable(fast, slow) {
  const count = Math.min(fast.length, slow.length);
  const places = [];
  for (let n = 1; n < count; n *= 2) places.push(n);
  if (count) places.push(count);
  part("rows").replaceChildren(
    ...places.map((n) => {
      const row = el("tr");
      const ratio = slow[n - 1] / fast[n - 1];
      for (const text of [whole(n), time(fast[n - 1]), time(slow[n - 1]), `${times(ratio)}×`]) {
        row.append(el("td", "n", text));
      }
      return row;
    }),
  );
}

/** Both answers, token by token; one that differs from the other's is struck through. */
function paintTexts() {
  const [fast, slow] = KINDS.map((kind) => runs[kind]?.tokens ?? []);
  const place = part("same");
  const nodes = slow.map((token, i) => {
    const same = fast[i]?.id === token.id;
    return same ? el("span", "", token.piece) : el("s", "other", visible(token.piece));
  });
  place.replaceChildren(...nodes);
}

function paint() {
  const [fast, slow] = KINDS.map((kind) => totals(runs[kind]));
  const end = Math.max(1, ...fast.slice(-1), ...slow.slice(-1));
  for (const kind of KINDS) paintRow(kind, end);
  paintCurves(fast, slow);
  paintTable(fast, slow);
  paintTexts();
}

function finish() {
  const [fast, slow] = KINDS.map((kind) => totals(runs[kind]));
  const count = Math.min(fast.length, slow.length);
  if (!count) return;
  const ratio = slow[count - 1] / fast[count - 1];
  const tokens = KINDS.map((kind) => runs[kind].tokens);
  const same = tokens[1].filter((token, i) => token.id === tokens[0][i]?.id).length;
  const prompt = runs.off.accepted.prompt_tokens;
  const at = passing(fast, slow);
  part("ratio").replaceChildren(`${times(ratio)}×`, el("small", "", ` ${t("race.ratio")}`));
  setText(part("agree"), t("race.same", { same, n: count, dtype: runs.off.accepted.dtype }));
  setText(
    part("work"),
    t("race.work", {
      on: whole(prompt + count - 1),
      off: whole(count * prompt + (count * (count - 1)) / 2),
    }),
  );
  const passes = at === null ? t("race.passes.not", { n: count }) : t("race.passes", { n: at });
  setText(part("passes"), passes);
  const right = CHOICES.filter((limit) => ratio >= limit).length;
  tellTruth(t("race.truth", { n: count, ratio: times(ratio) }), right);
  say(t("race.truth", { n: count, ratio: significant(ratio) }));
  did("race");
}

/**
 * Float32 where the engine has it: with fewer bits rounding tips a choice now and then, and the
 * texts part, which says nothing about the cache.
 */
function precision() {
  return facts()?.lanes.some(({ dtype }) => dtype === "float32") ? "float32" : "auto";
}

async function race() {
  runs = {};
  part("result").hidden = false;
  setText(part("problem"), "");
  button.textContent = button.dataset.stop;
  const request = {
    prompt: document.getElementById("race-prompt").value,
    max_tokens: Number(document.getElementById("race-length").value),
    temperature: 0,
    ignore_eos: true,
    dtype: precision(),
  };
  running = { id: null, ended: false };
  for (const kind of KINDS) {
    if (running.ended) break;
    setText(part("now"), t(`race.now.${kind}`));
    const onEvent = (event, run) => {
      runs[kind] = run;
      if (event.type === "opening") setText(part("now"), t("race.opening"));
      if (event.type === "token") paint();
    };
    const started = (id) => (running.id = id);
    const run = await generate({ ...request, kv_cache: kind }, { onEvent, started });
    runs[kind] = run;
    if (run.error) {
      setText(part("problem"), errorText(run.error));
      break;
    }
  }
  setText(part("now"), "");
  running = null;
  button.textContent = button.dataset.go;
  update();
  paint();
  if (runs.off?.done && runs.paged?.done) finish();
}

button.addEventListener("click", () => {
  if (!running) return race();
  running.ended = true;
  stop(running.id);
});

new ResizeObserver(() => runs.paged && paint()).observe(part("curves").parentElement);
