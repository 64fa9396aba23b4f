// The KV cache of one run: a cell for each position, a row for each block, filled token by token.
// Afterwards the reader steps through the run: what each step wrote, and what it read.

import { el, setText } from "../dom.js";
import { rove } from "../roving.js";
import { errorText } from "../status.js";
import { bytes, sentences, t, time, visible, whole } from "../texts.js";
import { needEngine } from "./buttons.js";
import { generate } from "./engine.js";
import { did, say } from "./lesson.js";
import { advanceOnSpace } from "./space.js";

const section = document.getElementById("cells");
const part = (name) => section.querySelector(`[data-${name}]`);
const button = document.getElementById("cells-go");
const slider = document.getElementById("cells-step");
const grid = part("grid");
let run = null;
let running = false;

const update = needEngine([button], part("wait"), () => !running);
const size = () => run.steps.at(-1)?.kv_block_tokens ?? 16;

/** The text of a position: a token of the prompt, or of the answer. */
function piece(position) {
  const { prompt_pieces: prompt, prompt_tokens: count } = run.accepted;
  return visible(position < count ? prompt[position] : (run.tokens[position - count]?.piece ?? ""));
}

/** Positions that are in the cache after the step of that number (from 0); 0 before all. */
const after = (step) => (step < 0 ? 0 : (run.steps[step]?.own_kv_tokens ?? 0));

function describe(position) {
  const block = Math.floor(position / size());
  const values = { position, block, place: position % size() };
  if (position >= after(Number(slider.value) - 1)) return t("cells.cell.free", values);
  return t("cells.cell", { ...values, piece: piece(position) });
}

function build() {
  const last = run.steps.at(-1);
  if (!last) return;
  const total = Math.ceil((run.accepted.prompt_tokens + run.accepted.max_tokens - 1) / size()) * size();
  if (grid.childElementCount === total) return;
  grid.replaceChildren(
    ...Array.from({ length: total }, (_, position) => {
      const cell = el("span", "cell");
      cell.setAttribute("role", "option");
      cell.setAttribute("aria-selected", "false");
      cell.tabIndex = -1;
      cell.dataset.position = position;
      return cell;
    }),
  );
  roving.refresh();
}

const roving = rove(grid, ".cell", (cell) => {
  setText(part("cell"), cell ? describe(Number(cell.dataset.position)) : t("cells.hint"));
});

function paintCells(step) {
  const [before, now] = [after(step - 1), after(step)];
  const prompt = run.accepted.prompt_tokens;
  for (const cell of grid.children) {
    const position = Number(cell.dataset.position);
    const state = position >= now ? "free" : position < prompt ? "prefill" : "decode";
    cell.dataset.state = state;
    cell.dataset.fresh = position >= before && position < now ? "yes" : "no";
    cell.setAttribute("aria-label", describe(position));
  }
  return [before, now];
}

function paint() {
  if (!run?.accepted || !run.steps.length) return;
  build();
  const step = Number(slider.value) - 1;
  const [before, now] = paintCells(step);
  const event = run.steps[step];
  const perToken = run.accepted.lane?.kv_bytes_per_token ?? null;
  const token = run.tokens.find((each) => each.step === step);
  setText(
    part("told"),
    sentences([
      t(`cells.step.${event.phase}`, {
        step: step + 1,
        total: run.steps.length,
        n: now - before,
        read: now,
        time: time(event.time_ms),
      }),
      token ? t("cells.step.token", { piece: visible(token.piece) }) : "",
    ]),
  );
  slider.setAttribute("aria-valuetext", part("told").textContent);
  const blocks = Math.ceil(now / size());
  setText(
    part("sum"),
    t("cells.sum", {
      n: now,
      bytes: perToken === null ? "—" : bytes(now * perToken),
      each: perToken === null ? "—" : bytes(perToken),
      blocks,
      free: blocks * size() - now,
    }),
  );
  paintTable(now);
}

/** The block table: which positions each block holds, and their text. */
function paintTable(now) {
  const rows = [];
  for (let from = 0; from < now; from += size()) {
    const to = Math.min(now, from + size());
    const row = el("tr");
    const text = Array.from({ length: to - from }, (_, i) => piece(from + i)).join("");
    row.append(el("td", "n", whole(from / size())), el("td", "n", `${from}–${to - 1}`));
    row.append(el("td", "n", `${to - from} / ${size()}`), el("td", "", text));
    rows.push(row);
  }
  part("rows").replaceChildren(...rows);
}

async function fill() {
  running = true;
  update();
  part("result").hidden = false;
  setText(part("problem"), "");
  slider.disabled = true;
  const onEvent = (event, current) => {
    run = current;
    if (event.type !== "step") return;
    slider.max = slider.value = run.steps.length;
    paint();
  };
  const request = {
    prompt: document.getElementById("cells-prompt").value,
    max_tokens: Number(document.getElementById("cells-length").value),
    temperature: 0,
    ignore_eos: true,
  };
  run = await generate(request, { onEvent });
  running = false;
  update();
  if (run.error) return setText(part("problem"), errorText(run.error));
  slider.disabled = run.steps.length < 2;
  slider.min = 1;
  paint();
  say(t("cells.done", { n: after(run.steps.length - 1) }));
}

slider.addEventListener("input", () => {
  paint();
  if (Number(slider.value) > 1) did("cells");
});
advanceOnSpace(slider);
button.addEventListener("click", fill);
