// Puts the steps on the server-drawn roofline: measured filled, predicted outlined.

import { setText, svg } from "./dom.js";
import { isOver, phases, recomputes } from "./run.js";
import { isMixed, kindOf } from "./strip.js";
import { changed, store } from "./store.js";
import { rate, significant, t, whole } from "./texts.js";

const MOST_MARKS = 300;
const [WIDE, NARROW] = [13.5, 8]; // pixels that a character of a label takes: Chinese, any other
const place = () => document.getElementById("roofline"); // anew: a swap may have replaced it

const SHAPES = {
  prefill: (x, y) => svg("path", { d: `M${x} ${y - 7}L${x + 7} ${y}L${x} ${y + 7}L${x - 7} ${y}Z` }),
  decode: (x, y) => svg("circle", { cx: x, cy: y, r: 5 }),
  recompute: (x, y) => svg("path", { d: `M${x} ${y - 7}L${x + 7} ${y + 5}H${x - 7}Z` }),
  mixed: (x, y) => svg("rect", { x: x - 5, y: y - 5, width: 10, height: 10 }),
};

/** One of the two drawings (wide, narrow) with its scales. */
class Chart {
  constructor(picture) {
    this.picture = picture;
    const number = (name) => Number(picture.dataset[name]);
    this.x = [number("xLow"), number("xHigh"), number("xStart"), number("xEnd")];
    this.y = [number("yLow"), number("yHigh"), number("yStart"), number("yEnd")];
    this.clear();
  }

  clear() {
    this.places = new Set();
    this.last = {};
    this.below = 0;
    for (const name of ["predicted", "measured", "labels"]) {
      this.layer(name).replaceChildren();
    }
  }

  layer(name) {
    return this.picture.querySelector(`[data-${name}]`);
  }

  at([low, high, start, end], value) {
    return start + ((Math.log10(value) - low) / (high - low)) * (end - start);
  }

  /** Marks one step once a pixel; the table holds every one of them. */
  mark(layer, step, seconds, title) {
    const kind = kindOf(step);
    const [, , left, right] = this.x;
    const [, , bottom] = this.y;
    const x = Math.round(Math.min(right, Math.max(left, this.at(this.x, step.intensity))));
    const raw = this.at(this.y, step.flops / seconds);
    const y = Math.round(Math.min(raw, bottom));
    if (layer === "measured") {
      this.last[kind] = { x: Math.max(x, this.last[kind]?.x ?? 0), y };
      if (raw > bottom) this.below += 1;
    }
    const key = `${layer} ${kind} ${x} ${y}`;
    if (this.places.has(key) || this.places.size >= MOST_MARKS) return;
    this.places.add(key);
    const shape = SHAPES[kind](x, y);
    shape.setAttribute("class", `mark ${kind}`);
    const node = svg("title");
    node.textContent = title;
    shape.append(node);
    this.layer(layer).append(shape);
  }

  /** Labels right of the last mark of their kind, or under it; none stands over another. */
  label(texts) {
    const [, , , right] = this.x;
    const [, , bottom, top] = this.y;
    const boxes = [];
    const nodes = [];
    for (const [kind, text] of texts) {
      const point = this.last[kind];
      if (!point) continue;
      const width = [...text].reduce((sum, char) => sum + (char > "\u2e80" ? WIDE : NARROW), 0);
      const end = point.x + 13 + width > right;
      const x = end ? right : point.x + 13;
      const from = end ? x - width : x;
      let y = point.y + (end ? 24 : kind === "prefill" ? 17 : 4);
      const hits = (box) => from < box.to && box.from < from + width && Math.abs(box.y - y) < 16;
      if (boxes.some(hits)) y = Math.max(...boxes.filter(hits).map((box) => box.y)) + 17;
      y = Math.min(bottom - 6, Math.max(top + 12, y));
      boxes.push({ from, to: from + width, y });
      const node = svg("text", { x, y, "text-anchor": end ? "end" : "start" });
      node.textContent = text;
      nodes.push(node);
    }
    this.layer("labels").replaceChildren(...nodes);
  }

  cursor(step) {
    this.picture.querySelector(".mark-cursor")?.remove();
    if (!step || step.flops === null) return;
    const x = this.at(this.x, step.intensity);
    const y = Math.min(this.at(this.y, step.flops / step.time), this.y[2]);
    const ring = svg("circle", { class: "mark-cursor", cx: x, cy: y, r: 11 });
    this.layer("measured").after(ring);
  }
}

export function mountRoofline() {
  let charts = [];
  let roof = null;
  let shown = null;
  let drawn = 0;

  function load() {
    roof = place().querySelector(".roof");
    charts = [...place().querySelectorAll("svg.roofline")].map((picture) => new Chart(picture));
    shown = null;
    const { dtype, bandwidth, peak } = roof.dataset;
    store.roof = peak ? { dtype, bandwidth: Number(bandwidth), peak: Number(peak) } : { dtype };
    changed();
  }

  function draw(run) {
    for (; drawn < run.steps.length; drawn += 1) {
      const step = run.steps[drawn];
      if (step.flops === null || !step.intensity) continue;
      const title = (text, seconds) =>
        t(text, {
          n: drawn + 1,
          kind: t(kindOf(step)),
          intensity: significant(step.intensity),
          rate: rate(step.flops / seconds),
        });
      const { time, predicted_time: predicted } = step;
      for (const chart of charts) {
        chart.mark("measured", step, time, title("roof.mark", time));
        if (predicted) chart.mark("predicted", step, predicted, title("roof.predicted", predicted));
      }
    }
  }

  function note(run) {
    if (run.accepted && roof.dataset.dtype !== run.accepted.dtype) {
      return t("roof.other", { dtype: run.accepted.dtype });
    }
    if (isOver(run) && run.steps.length && run.steps.every((step) => step.flops === null)) {
      return t("roof.noCost");
    }
    return charts[0].below ? t("roof.below", { n: charts[0].below }) : "";
  }

  document.body.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id === "roofline") load();
  });
  load();

  return ({ run, selected }) => {
    if (!run) return;
    if (shown !== run) {
      shown = run;
      drawn = 0;
      for (const chart of charts) chart.clear();
    }
    const fits = !run.accepted || roof.dataset.dtype === run.accepted.dtype;
    if (fits) {
      draw(run);
      const { decode } = phases(run);
      const mixed = decode.filter(isMixed).length;
      const steps = { n: decode.length, mixed: whole(mixed) };
      for (const chart of charts) {
        chart.label([
          ["prefill", t("roof.prefill", { n: run.accepted?.prompt_tokens ?? 0 })],
          recomputes(decode)
            ? ["recompute", t("roof.recompute", steps)]
            : ["decode", t(mixed ? "roof.decodeMixed" : "roof.decode", steps)],
        ]);
        chart.cursor(run.steps[selected]);
      }
    }
    setText(roof.querySelector("[data-note]"), note(run));
  };
}
