// The table twin of strip and roofline: a page of steps at a time, so that it stays small.

import { el, setText } from "./dom.js";
import { isOver } from "./run.js";
import { phaseText } from "./strip.js";
import { changed, store } from "./store.js";
import { bandwidth, rate, significant, t, time, whole } from "./texts.js";

const PAGE = 40;
const place = document.getElementById("steps");
const part = (name) => place.querySelector(`[data-${name}]`);

function row(step, index) {
  const known = step.flops !== null;
  const node = el("tr", step.phase);
  const head = el("th", "", whole(index + 1));
  head.scope = "row";
  node.append(head);
  for (const text of [
    phaseText(step),
    whole(step.batch),
    whole(step.tokens),
    time(step.time_ms),
    ...[step.typical_ms, step.predicted_ms].map((ms) => ((ms ?? null) === null ? "—" : time(ms))),
    known ? significant(step.intensity) : "—",
    known ? rate(step.flops / step.time) : "—",
    known ? bandwidth(step.bytes / step.time) : "—",
    whole(step.own_kv_tokens),
  ]) {
    node.append(el("td", "", text));
  }
  return node;
}

export function mountTable() {
  const rows = part("rows");
  let shown = null;
  let from = null; // the first step on the page; null follows the newest
  let painted = "";

  /** The first step of the newest page, which is a full one wherever there are enough steps. */
  const newest = (run) => Math.max(0, run.steps.length - PAGE);
  const turn = (by) => {
    const { run } = store;
    if (!run) return;
    from = Math.min(newest(run), Math.max(0, (from ?? newest(run)) + by));
    changed();
  };
  part("back").addEventListener("click", () => turn(-PAGE));
  part("forth").addEventListener("click", () => turn(PAGE));
  place.addEventListener("toggle", () => {
    if (place.open && store.run && isOver(store.run)) from = 0; // nothing new to follow
    changed();
  });

  return ({ run }) => {
    if (!run) return;
    const total = run.steps.length;
    setText(part("count"), total ? `(${whole(total)})` : "");
    if (shown !== run) {
      shown = run;
      from = null;
      painted = "";
      rows.replaceChildren();
    }
    if (!place.open || !total) return;
    const start = from ?? newest(run);
    const to = Math.min(total, start + PAGE);
    if (painted === `${start} ${to} ${total}`) return;
    painted = `${start} ${to} ${total}`;
    rows.replaceChildren(...run.steps.slice(start, to).map((step, i) => row(step, start + i)));
    part("pager").hidden = total <= PAGE;
    part("back").disabled = start === 0;
    part("forth").disabled = start >= newest(run);
    setText(part("range"), t("table.range", { from: start + 1, to, total }));
  };
}
