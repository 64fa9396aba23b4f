// Several runs of one engine on one time axis, a row a run, a block a step. The engine numbers the
// steps of a lane, so that the same step in two runs is found, and drawn, at the same place.

import { svg } from "../dom.js";

/** One run's row: its steps as they were told, and where its own clock stands on the page's. */
class Row {
  constructor(name, sentAt) {
    this.name = name;
    this.sentAt = sentAt;
    this.run = null;
    this.offset = Infinity; // page's clock at the run's own zero
  }

  /** A step cannot have ended after it was heard of; the quickest message is the best witness. */
  hear(step, now) {
    this.offset = Math.min(this.offset, now - step.start_ms - step.time_ms);
  }
}

/** Tokens of this run that a step computed. */
export function ownTokens(run, index) {
  const step = run.steps[index];
  const before = index ? run.steps[index - 1].own_kv_tokens : (run.started?.cached_tokens ?? 0);
  return Math.max(1, step.own_kv_tokens - before);
}

export class Gantt {
  constructor() {
    this.clear();
  }

  clear() {
    this.rows = [];
  }

  /** A new row; `now` is the page's clock when its prompt was sent. */
  add(name, now) {
    const row = new Row(name, now);
    this.rows.push(row);
    return row;
  }

  /** All steps in order of time: {number, start, time, batch, parts: [{row, index}]}. */
  steps() {
    const found = new Map();
    for (const row of this.rows) {
      if (!row.run) continue;
      const shared = row.run.steps.find((step) => found.has(step.step));
      if (shared) row.offset = found.get(shared.step).start - shared.start_ms;
      row.run.steps.forEach((step, index) => {
        const known = found.get(step.step) ?? {
          number: step.step,
          start: row.offset + step.start_ms,
          time: step.time_ms,
          batch: step.batch,
          parts: [],
        };
        known.parts.push({ row, index });
        found.set(step.step, known);
      });
    }
    return [...found.values()].sort((a, b) => a.start - b.start);
  }

  /** Draws every row into its own picture; `pictures[i]` belongs to row i. `at` is looked at. */
  draw(pictures, steps, at = null) {
    if (!this.rows.length) return;
    const zero = Math.min(...this.rows.map((row) => row.sentAt), ...steps.map(({ start }) => start));
    const end = Math.max(1, ...steps.map(({ start, time }) => start + time - zero));
    this.rows.forEach((row, i) => {
      const mine = steps.filter(({ parts }) => parts.some((part) => part.row === row));
      const blocks = mine.map(({ start, time, parts }) => {
        const { index } = parts.find((part) => part.row === row);
        const { phase } = row.run.steps[index];
        const gap = Math.min(time * 0.12, end / 400);
        return svg("rect", { class: phase, x: start - zero, y: 0, width: time - gap, height: 10 });
      });
      const first = mine[0]?.start ?? null;
      if (first !== null && first > row.sentAt) {
        const x = row.sentAt - zero;
        blocks.push(svg("rect", { class: "wait", x, y: 3, width: first - row.sentAt, height: 4 }));
      }
      if (at) {
        blocks.push(
          svg("rect", { class: "cursor", x: at.start - zero, y: 0, width: at.time, height: 10 }),
        );
      }
      pictures[i].setAttribute("viewBox", `0 0 ${end} 10`);
      pictures[i].replaceChildren(...blocks);
    });
  }
}
