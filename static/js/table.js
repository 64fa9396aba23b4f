// The table twin of strip and roofline: a page of steps at a time, so that it stays small.

import { el, setText } from "./dom.js";
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
    step.predicted_ms === null ? "—" : time(step.predicted_ms),
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
  let page = null; // null follows the newest steps
  let painted = "";

  const pages = (run) => Math.max(1, Math.ceil(run.steps.length / PAGE));
  const turn = (by) => {
    const { run } = store;
    if (!run) return;
    const last = pages(run) - 1;
    page = Math.min(last, Math.max(0, (page ?? last) + by));
    changed();
  };
  part("back").addEventListener("click", () => turn(-1));
  part("forth").addEventListener("click", () => turn(1));
  place.addEventListener("toggle", () => changed());

  return ({ run }) => {
    if (!run) return;
    const total = run.steps.length;
    setText(part("count"), total ? `(${whole(total)})` : "");
    if (shown !== run) {
      shown = run;
      page = null;
      painted = "";
      rows.replaceChildren();
    }
    if (!place.open || !total) return;
    const current = Math.min(page ?? pages(run) - 1, pages(run) - 1);
    const from = current * PAGE;
    const to = Math.min(total, from + PAGE);
    if (painted === `${from} ${to}`) return;
    painted = `${from} ${to}`;
    rows.replaceChildren(...run.steps.slice(from, to).map((step, i) => row(step, from + i)));
    part("pager").hidden = total <= PAGE;
    part("back").disabled = current === 0;
    part("forth").disabled = current === pages(run) - 1;
    setText(part("range"), t("table.range", { from: from + 1, to, total }));
  };
}
