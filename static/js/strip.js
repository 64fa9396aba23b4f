// The run in time, to scale: one SVG whose user unit is a millisecond, labels in HTML beside it.

import { median, setText, sum, svg } from "./dom.js";
import {
  expected,
  isOver,
  pauseBefore,
  pauseCauses,
  pauses,
  phases,
  recomputes,
  ttft,
} from "./run.js";
import { changed, select, store } from "./store.js";
import { listed, sentences, t, time, visible, whole } from "./texts.js";

const MOST_BLOCKS = 600; // more steps than that share a block
const ROW = { top: 0, height: 36 };
const GHOST = { top: 41, height: 9 };
const MATES = { top: 53, height: 3 };
const THIN = 3; // pixels; outlines of thinner steps would merge into a filled bar

const section = document.getElementById("strip");
const part = (name) => section.querySelector(`[data-${name}]`);

/** Whether others were in the other phase in that step. */
export const isMixed = (step) => step.step_phase === "mixed";

/** What kind of step it was as a whole: prefill, decode, or mixed. */
export const kindOf = (step) => (isMixed(step) ? "mixed" : step.phase);

/** This prompt's own phase in words, and whether others were in the other one. */
export const phaseText = (step) => t(isMixed(step) ? `${step.phase}.mixed` : step.phase);

/** Blocks, pauses and predicted outlines of one run in an SVG whose user unit is a millisecond. */
export class Drawing {
  constructor(picture) {
    this.picture = picture;
    this.clear(null);
  }

  clear(run) {
    this.run = run;
    this.drawn = 0;
    this.group = 1;
    this.ghostEnd = null;
    this.ghosts = { count: 0, span: 0 };
    this.envelope = null;
    this.layers = {};
    for (const name of ["waiting", "ghost", "envelope", "blocks", "pauses", "mates", "cursor"]) {
      this.layers[name] = svg("g", { class: `layer-${name}` });
    }
    this.picture.replaceChildren(...Object.values(this.layers));
  }

  /** Draws what came since the last call. */
  add(steps) {
    if (steps.length / this.group > MOST_BLOCKS) {
      const { group, run } = this;
      this.clear(run);
      this.group = group * 2;
    }
    while (this.drawn + this.group <= steps.length || this.mustFinish(steps)) {
      const before = steps[this.drawn - 1];
      this.block(steps.slice(this.drawn, this.drawn + this.group), before);
      this.drawn = Math.min(steps.length, this.drawn + this.group);
    }
  }

  mustFinish(steps) {
    return isOver(this.run) && this.drawn < steps.length;
  }

  block(steps, before) {
    const [first, last] = [steps[0], steps.at(-1)];
    const width = last.start_ms + last.time_ms - first.start_ms;
    this.layers.blocks.append(
      svg("rect", {
        class: `block ${first.phase} ${isMixed(first) ? "mixed" : ""}`,
        x: first.start_ms,
        y: ROW.top,
        width,
        height: ROW.height,
      }),
    );
    this.pause(first.start_ms, pauseBefore(before, first));
    // Steps that share a block share what they paused, too: it stands at the end of the block.
    const inside = sum(steps.slice(1).map((step, i) => pauseBefore(steps[i], step)));
    this.pause(first.start_ms + width, inside);
    if (steps.some((step) => step.batch > 1)) {
      this.layers.mates.append(
        svg("rect", { class: "mates", x: first.start_ms, y: MATES.top, width, height: MATES.height }),
      );
    }
    const times = steps.map(expected);
    if (times.includes(null)) return;
    this.predict(first.phase, sum(times));
  }

  /** Predicted steps stand end to end from the first one's start: a run without pauses. */
  predict(phase, span) {
    this.ghostEnd ??= this.run.steps[0].start_ms;
    const outline = (x, width) =>
      svg("rect", { class: `ghost ${phase}`, x, y: GHOST.top, width, height: GHOST.height });
    this.layers.ghost.append(outline(this.ghostEnd, span));
    if (this.envelope?.phase !== phase) {
      this.envelope = { phase, from: this.ghostEnd, node: outline(this.ghostEnd, 0) };
      this.layers.envelope.append(this.envelope.node);
    }
    this.ghostEnd += span;
    this.envelope.node.setAttribute("width", this.ghostEnd - this.envelope.from);
    if (phase !== "prefill") {
      this.ghosts.count += 1;
      this.ghosts.span += span;
    }
  }

  /** Whether predicted steps would be thinner than their outlines leave room for. */
  isThin(pixelsPerMs) {
    const { count, span } = this.ghosts;
    return count > 1 && (span / count) * pixelsPerMs < THIN;
  }

  pause(end, width) {
    if (!width) return;
    this.layers.pauses.append(
      svg("rect", { class: "wait", x: end - width, y: ROW.top, width, height: ROW.height }),
    );
  }

  waiting(from, to) {
    if (to <= from) return this.layers.waiting.replaceChildren();
    const place = { x: from, y: ROW.top, width: to - from, height: ROW.height };
    this.layers.waiting.replaceChildren(svg("rect", { class: "wait", ...place }));
  }

  cursor(step) {
    if (!step) return this.layers.cursor.replaceChildren();
    this.layers.cursor.replaceChildren(
      svg("rect", { class: "cursor", x: step.start_ms, y: 0, width: step.time_ms, height: 52 }),
    );
  }
}

function readout(run, index) {
  const step = run.steps[index];
  const parts = [
    t("strip.step", {
      n: index + 1,
      total: run.steps.length,
      phase: phaseText(step),
      time: time(step.time_ms),
      start: time(step.start_ms),
    }),
  ];
  if (expected(step) !== null) {
    const kind = (step.typical_ms ?? null) === null ? "ideal" : "typical";
    parts.push(t(`strip.step.${kind}`, { time: time(expected(step)) }));
  }
  parts.push(t("strip.step.tokens", { n: step.tokens }), t("strip.step.batch", { n: step.batch }));
  const token = run.tokens[step.token];
  if (token) parts.push(t("strip.step.token", { piece: visible(token.piece) }));
  return parts.join(" · ");
}

function company(run) {
  const { steps } = run;
  const last = steps.at(-1);
  const parts = [];
  if (run.dropped) parts.push(t("batch.dropped", { n: run.dropped }));
  if (!last) return sentences(parts);
  const shared = steps.filter((step) => step.batch > 1).length;
  if (isOver(run)) {
    const max = Math.max(...steps.map((step) => step.batch));
    const values = { shared: whole(shared), n: steps.length, max };
    if (shared) parts.push(t("batch.was", values));
    else parts.push(t(pauses(run).length ? "batch.aloneInOwn" : "batch.alone"));
  } else {
    parts.push(last.batch > 1 ? t("batch.shared", { n: last.batch }) : t("batch.aloneNow"));
    if (last.waiting > 0) parts.push(t("batch.waiting", { n: last.waiting }));
  }
  parts.push(between(run));
  return sentences(parts);
}

const PAUSE = {
  lane: "pause.lane",
  prefill: "pause.prefill",
  decode: "pause.decode",
  preparing: "pause.preparing",
  engine: "pause.engine",
};

/** What the engine did between the steps of this prompt, in words. */
function between(run) {
  const all = pauses(run);
  if (!all.length) return "";
  const values = { n: all.length, time: time(sum(all)) };
  const causes = pauseCauses(run).map(([cause, ms]) => t(PAUSE[cause], { time: time(ms) }));
  if (!causes.length) return t("batch.pauses", values);
  return t("batch.pausesOf", { ...values, causes: listed(causes) });
}

/** Milliseconds since the prompt was sent, as long as no step has come back. */
function elapsed(run) {
  if (run.recorded) return run.steps.length ? 0 : run.at;
  return run.steps.length || isOver(run) ? 0 : performance.now() - run.sentAt;
}

function labels(run) {
  const { prefill, decode } = phases(run);
  const spent = prefill.reduce((total, step) => total + step.time_ms, 0);
  let left = "";
  if (prefill.length) {
    const values = { n: run.accepted.prompt_tokens, steps: prefill.length, time: time(spent) };
    left = t(prefill.length > 1 ? "strip.prefillSteps" : "strip.prefill", values);
  } else if (!isOver(run)) {
    const waits = run.position > 1 || run.status === "opening";
    left = t(waits ? "strip.waiting" : "strip.running", { time: time(elapsed(run)) });
  }
  setText(part("prefill"), left);
  part("prefill").classList.toggle("pending", !prefill.length);
  part("decode").classList.toggle("again", recomputes(decode));
  const middle = median(decode.map((step) => step.time_ms));
  setText(
    part("decode"),
    middle === null ? "" : t(recomputes(decode) ? "strip.recompute" : "strip.decode", { n: decode.length, time: time(middle) }),
  );
}

function axis(run, end) {
  const first = ttft(run);
  part("axis").hidden = !run.steps.length && isOver(run);
  setText(part("end"), time(end));
  const mark = part("first");
  mark.hidden = first === null;
  if (first === null) return;
  setText(mark, t("strip.first", { time: time(first) }));
  // The label keeps clear of both ends, whatever its place.
  const room = part("axis").clientWidth;
  const half = mark.offsetWidth / 2;
  const clear = part("end").offsetWidth + half + 24;
  const least = half + 32;
  const place = Math.min(Math.max((first / end) * room, least), Math.max(room - clear, least));
  mark.style.left = `${place}px`;
}

export function mountStrip() {
  const bar = document.getElementById("strip-bar");
  const picture = part("times");
  const drawing = new Drawing(picture);
  let shown = null;

  const indexAt = (event) => {
    const { run } = store;
    if (!run?.steps.length) return null;
    const box = bar.getBoundingClientRect();
    const ms = ((event.clientX - box.left) / box.width) * Number(picture.dataset.span);
    const at = run.steps.findIndex((step) => ms < step.start_ms + step.time_ms);
    return at < 0 ? run.steps.length - 1 : at;
  };
  bar.addEventListener("pointermove", (event) => select(indexAt(event)));
  bar.addEventListener("pointerdown", (event) => select(indexAt(event)));
  bar.addEventListener("pointerleave", () => document.activeElement !== bar && select(null));
  bar.addEventListener("blur", () => select(null));
  bar.addEventListener("keydown", (event) => {
    const count = store.run?.steps.length ?? 0;
    const now = store.selected ?? -1;
    const next = {
      ArrowRight: now + 1,
      ArrowUp: now + 1,
      ArrowLeft: now - 1,
      ArrowDown: now - 1,
      PageUp: now + 10,
      PageDown: now - 10,
      Home: 0,
      End: count - 1,
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    if (count) select(Math.min(count - 1, Math.max(0, next)));
  });

  return ({ run, selected }) => {
    if (!run) return;
    if (shown !== run) {
      shown = run;
      drawing.clear(run);
    }
    const nothing = isOver(run) && !run.steps.length;
    part("empty").hidden = !nothing;
    picture.toggleAttribute("hidden", nothing);
    drawing.add(run.steps);
    const last = run.steps.at(-1);
    const now = elapsed(run);
    const measured = last ? last.start_ms + last.time_ms : now;
    const end = Math.max(measured, ttft(run) ?? 0, drawing.ghostEnd ?? 0, 1);
    drawing.waiting(run.accepted?.tokenize_ms ?? 0, run.steps[0]?.start_ms ?? now);
    drawing.cursor(run.steps[selected]);
    picture.setAttribute("viewBox", `0 0 ${end} 56`);
    picture.dataset.span = end;
    picture.dataset.thin = String(drawing.isThin(bar.clientWidth / end));
    picture.dataset.dense = String(drawing.layers.blocks.childElementCount > bar.clientWidth / 6);
    labels(run);
    axis(run, end);
    const count = run.steps.length;
    bar.setAttribute("aria-valuemax", count);
    bar.setAttribute("aria-valuemin", count ? 1 : 0);
    bar.setAttribute("aria-valuenow", selected === null ? count : selected + 1);
    const text = run.steps[selected] ? readout(run, selected) : "";
    setText(part("readout"), text);
    bar.setAttribute("aria-valuetext", text || (count ? readout(run, count - 1) : t("strip.empty")));
    setText(part("company"), company(run));
    if (now && !run.recorded) changed(); // time passes although no event arrives
  };
}
