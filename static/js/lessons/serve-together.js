// People on one engine: alone, together, and with a long prompt between. Each run is real; the rows
// are its steps in time, and a slider goes through the steps of all.

import { el, setText, svg, tableRow } from "../dom.js";
import { gaps, isOver, ttft } from "../run.js";
import { errorText } from "../status.js";
import { sentences, t, time, times } from "../texts.js";
import { needEngine } from "./buttons.js";
import { generate, stop } from "./engine.js";
import { Gantt, ownTokens } from "./gantt.js";
import { did, guessed, onGuess, say, tellTruth } from "./lesson.js";
import { advanceOnSpace } from "./space.js";

const MOST = 4; // what a connection may run at once
const TOKENS = 64;
const LONG_TOKENS = 24;
const LONG_LETTERS = 7000; // some 1,500 tokens of English: more than a step takes
/** Beginnings of the other people; what they are about does not matter. */
const OTHERS = [
  "In the year 1900, the harbour of the old town was",
  "To bake a simple loaf of bread, you first",
  "The three largest planets of the solar system are",
];
/** Where the guess's choices end, as times of one answer alone. */
const CHOICES = [1.5, 3];

const section = document.getElementById("together");
const part = (name) => section.querySelector(`[data-${name}]`);
const prompt = document.getElementById("together-prompt");
const go = document.getElementById("together-go");
const add = document.getElementById("person-add");
const long = document.getElementById("long-add");
const clear = document.getElementById("person-clear");
const slider = document.getElementById("together-step");
const gantt = new Gantt();
let measuring = false;
let people = 0;
let steps = [];
let following = true;

const busy = () => gantt.rows.filter((row) => !row.run || !isOver(row.run)).length;
const update = [
  needEngine([go], document.getElementById("together-wait"), () => guessed() !== null && !busy()),
  needEngine([add, long], part("wait"), () => !measuring && busy() < MOST),
];
onGuess(() => refresh());

function refresh() {
  for (const check of update) check();
  clear.disabled = measuring || !gantt.rows.length;
}

function rowNode(row) {
  const node = el("div", "race-row");
  const head = el("p");
  const told = el("span", "soft");
  head.append(el("b", "", row.name), " ", told);
  const picture = svg("svg", {
    class: "ticks",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  node.append(head, picture);
  return Object.assign(row, { node, told, picture });
}

function rowText({ run }) {
  if (!run) return t("serve.row.sent");
  if (run.error) return errorText(run.error);
  const list = gaps(run);
  if (!run.tokens.length) return t("serve.row.waiting");
  const mean = list.length ? list.reduce((sum, gap) => sum + gap, 0) / list.length : null;
  return t("serve.row", {
    n: run.tokens.length,
    ttft: time(ttft(run)),
    itl: mean === null ? "—" : time(mean),
    worst: list.length ? time(Math.max(...list)) : "—",
  });
}

/** What one step did for everybody in it. */
function readout(step, index) {
  const parts = step.parts.map(({ row, index: at }) => {
    const { phase } = row.run.steps[at];
    return t(`serve.part.${phase}`, { name: row.name, n: ownTokens(row.run, at) });
  });
  const others = step.batch - step.parts.length;
  if (others > 0) parts.push(t("serve.part.others", { n: others }));
  return sentences([
    t("serve.step", { n: index + 1, total: steps.length, time: time(step.time) }),
    ...parts,
  ]);
}

function paint() {
  steps = gantt.steps();
  slider.disabled = !steps.length;
  slider.max = Math.max(1, steps.length);
  if (following) slider.value = slider.max;
  const index = Math.min(steps.length, Number(slider.value)) - 1;
  const at = following ? null : steps[index];
  gantt.draw(
    gantt.rows.map((row) => row.picture),
    steps,
    at,
  );
  for (const row of gantt.rows) setText(row.told, rowText(row));
  const text = steps[index] ? readout(steps[index], index) : "";
  setText(part("told"), text);
  slider.setAttribute("aria-valuetext", text);
  const shared = steps.filter(({ batch }) => batch > 1).length;
  const most = Math.max(0, ...steps.map(({ batch }) => batch));
  setText(part("sum"), steps.length ? t("serve.sum", { n: steps.length, shared, most }) : "");
  paintTable();
}

/** The table twin: a line a run. */
function paintTable() {
  part("rows").replaceChildren(
    ...gantt.rows.map((row) => {
      const { run } = row;
      const list = run ? gaps(run) : [];
      const mean = list.length ? list.reduce((sum, gap) => sum + gap, 0) / list.length : null;
      const prefills = run?.steps.filter(({ phase }) => phase === "prefill").length ?? 0;
      return tableRow(row.name, [
        String(run?.accepted?.prompt_tokens ?? "—"),
        String(prefills),
        String(run?.tokens.length ?? 0),
        run?.tokens.length ? time(ttft(run)) : "—",
        mean === null ? "—" : time(mean),
        list.length ? time(Math.max(...list)) : "—",
      ]);
    }),
  );
}

async function person(name, text, tokens) {
  const row = rowNode(gantt.add(name, performance.now()));
  part("pictures").append(row.node);
  part("result").hidden = false;
  refresh();
  const onEvent = (event, run) => {
    row.run = run;
    if (event.type === "started") run.started = event;
    if (event.type === "step") row.hear(event, performance.now());
    if (event.type === "step" || event.type === "token") paint();
  };
  const request = { prompt: text, max_tokens: tokens, temperature: 0, ignore_eos: true };
  const started = (id) => (row.id = id);
  row.run = await generate(request, { onEvent, started });
  refresh();
  paint();
  return row.run;
}

/** Seconds of a run from its being sent to its last token; null where it failed. */
const lasting = (run) => (run.tokens.length ? run.tokens.at(-1).time_ms : null);

function wipe() {
  for (const row of gantt.rows) if (row.run && !isOver(row.run)) stop(row.id);
  gantt.clear();
  people = 0;
  part("pictures").replaceChildren();
  following = true;
  paint();
  refresh();
}

async function measure() {
  measuring = true;
  wipe();
  setText(part("problem"), "");
  const texts = [prompt.value, ...OTHERS];
  const alone = await person(t("serve.alone"), texts[0], TOKENS);
  const together = alone.error
    ? []
    : await Promise.all(texts.map((text, i) => person(t("serve.person", { n: i + 1 }), text, TOKENS)));
  measuring = false;
  people = texts.length;
  refresh();
  const failed = [alone, ...together].find(({ error }) => error);
  if (failed) return setText(part("problem"), errorText(failed.error));
  const ratio = Math.max(...together.map(lasting)) / lasting(alone);
  const values = { ratio: times(ratio), alone: time(lasting(alone)), rate: times(MOST / ratio) };
  tellTruth(t("serve.truth", values), CHOICES.filter((limit) => ratio >= limit).length);
  say(t("serve.truth", values));
  did("together");
}

function addPerson() {
  const texts = [prompt.value, ...OTHERS];
  const text = texts[people % texts.length];
  people += 1;
  person(t("serve.person", { n: people }), text, TOKENS);
}

function addLong() {
  const text = `${prompt.value}\n`.repeat(Math.ceil(LONG_LETTERS / (prompt.value.length + 1)));
  people += 1;
  person(t("serve.long", { n: people }), text.slice(0, LONG_LETTERS), LONG_TOKENS);
}

slider.addEventListener("input", () => {
  following = false;
  paint();
  const own = steps.filter(({ parts }) => parts.length > 1).length;
  if (own) did("interleave");
});
advanceOnSpace(slider);
go.addEventListener("click", measure);
add.addEventListener("click", addPerson);
long.addEventListener("click", addLong);
clear.addEventListener("click", wipe);
refresh();
