// The likeliest tokens one by one: what each should come (outlined), and what came (filled).

import { el, svg } from "../dom.js";
import { percent, t, visible, whole } from "../texts.js";
import { chance } from "./sampling-shape.js";
import { tok } from "./tok.js";

export const SHOWN = 12;
const FIRST_DRAWS = 40;
const FILTERS = [
  ["topK", "top-k"],
  ["topP", "top-p"],
  ["minP", "min-p"],
];

/** The filter that cut a rank, "" where it is still there. */
function cutBy({ left }, at) {
  if (at >= left.temperature) return t("sampling.cut.cold");
  const found = FILTERS.find(([name]) => at >= left[name]);
  return found ? t("sampling.cut", { filter: found[1] }) : "";
}

/** How often each rank was drawn. */
export function tally(draws) {
  const counts = new Map();
  for (const at of draws) counts.set(at, (counts.get(at) ?? 0) + 1);
  return counts;
}

function picture(top, p, share, own) {
  const node = svg("svg", { class: "compare", "aria-hidden": "true" });
  const wide = (value) => `${(100 * value) / top}%`;
  node.append(
    svg("rect", { class: "drawn", width: wide(share), height: "100%" }),
    svg("rect", { class: "chance", width: wide(p), height: "100%" }),
    svg("line", { class: "tick", x1: wide(own), x2: wide(own), y1: "-25%", y2: "125%" }),
  );
  return node;
}

/** Rows of a table: token, picture, the model's own probability, now, drawn. */
export function drawBars(body, { names, own, shaped, draws }) {
  const counts = tally(draws);
  const n = draws.length;
  const row = (at) => [chance(own, at), chance(shaped, at), counts.get(at) ?? 0];
  const rows = names.slice(0, SHOWN).map((name, at) => [visible(name), cutBy(shaped, at), ...row(at)]);
  const rest = rows.reduce(
    ([a, b, c], [, , x, y, z]) => [a - x, b - y, c - z],
    [1, 1, n],
  );
  const others = t("sampling.others", { n: own.weights.length - rows.length });
  const notes = shaped.kept > rows.length ? "" : t("sampling.cut.others");
  rows.push([others, notes, Math.max(0, rest[0]), Math.max(0, rest[1]), rest[2]]);
  const top = Math.max(...rows.flatMap(([, , x, y, z]) => [x, y, n ? z / n : 0]));
  body.replaceChildren(
    ...rows.map(([name, note, was, p, count], at) => {
      const node = el("tr", note ? "cut" : at === SHOWN ? "others" : "");
      const head = el("th", "piece", name);
      head.scope = "row";
      if (note) head.append(el("span", "note", note));
      const cell = el("td", "compare-cell");
      cell.append(picture(top, p, n ? count / n : 0, was));
      node.append(head, cell, el("td", "n own", percent(was)), el("td", "n", percent(p)));
      node.append(el("td", "n count", n ? whole(count) : "—"));
      return node;
    }),
  );
}

/** The first draws in their order: the likeliest filled, every other outlined. */
export function drawOrder(box, draws, nameOf) {
  box.replaceChildren(
    ...draws.slice(0, FIRST_DRAWS).map((at) => {
      const title = at ? t("sampling.rank", { n: at + 1 }) : t("sampling.likeliest");
      return tok(nameOf(at), at ? "other" : "taken", title);
    }),
  );
}

/** The ranks among the first draws that have no name yet. */
export const unnamed = (draws, isNamed) =>
  [...new Set(draws.slice(0, FIRST_DRAWS))].filter((at) => !isNamed(at));
