// A row of a matrix of the real model: its weights, the levels they may take, and where each ends up.

import { post, unpack } from "../api.js";
import { el, setText, svg } from "../dom.js";
import { percent, significant, t, whole } from "../texts.js";
import { latest, tellIn } from "./latest.js";
import { did } from "./lesson.js";
import { onReady } from "./ready.js";

// Weights of the row that are drawn: two groups of the smallest size.
const [LABEL_EDGE, LABEL_CHARACTER] = [15, 8]; // pixels that a label of the bar takes
const SHOWN = 64;
const WIDTH = 640;
const HEIGHT = 220;

const root = document.getElementById("row");
const picture = root.querySelector(".row-picture");
const facts = root.querySelector(".row-facts");
const status = root.querySelector(".row-status");
const twin = root.querySelector(".row-twin tbody");
const field = (id) => document.getElementById(`row-${id}`);
const question = latest();
const seen = new Set();

function name() {
  const bits = field("bits").value;
  return bits === "file" ? "file" : `${bits}-${field("shared").value}`;
}

/** The levels that the weights of a group may take, as far as they lie in the picture. */
function levelsOf({ bits, scales, offsets }, group) {
  const [low, high] = bits === 4 ? [0, 15] : [-127, 127];
  const levels = [];
  for (let level = low; level <= high; level++) levels.push(level * scales[group] + (offsets[group] ?? 0));
  return levels;
}

function draw(found, before, after) {
  const count = Math.min(SHOWN, before.length);
  const shown = [...before.slice(0, count), ...after.slice(0, count)];
  const reach = 1.08 * Math.max(...shown.map(Math.abs), 1e-9);
  const x = (index) => ((index + 0.5) / count) * WIDTH;
  const y = (value) => HEIGHT / 2 - (value / reach) * (HEIGHT / 2);
  const layers = [svg("path", { class: "zero", d: `M0 ${HEIGHT / 2}H${WIDTH}` })];
  const groups = Math.ceil(count / found.group_size);
  for (let group = 0; group < groups; group++) {
    const from = ((group * found.group_size) / count) * WIDTH;
    const to = Math.min(WIDTH, (((group + 1) * found.group_size) / count) * WIDTH);
    // 255 levels would be a grey field: their step is said in words.
    const lines = found.bits === 4 ? levelsOf(found, group).filter((v) => Math.abs(v) <= reach) : [];
    const d = lines.map((value) => `M${from + 2} ${y(value).toFixed(1)}H${to - 2}`).join("");
    layers.push(svg("path", { class: "level", d }));
    if (group) layers.push(svg("path", { class: "border", d: `M${from} 0V${HEIGHT}` }));
  }
  for (let index = 0; index < count; index++) {
    const at = { x1: x(index), x2: x(index) };
    layers.push(
      svg("line", { class: "moved", ...at, y1: y(before[index]), y2: y(after[index]) }),
      svg("circle", { class: "before", cx: x(index), cy: y(before[index]), r: 3.2 }),
      svg("circle", { class: "after", cx: x(index), cy: y(after[index]), r: 2 }),
    );
  }
  picture.replaceChildren(...layers);
  const title = t("row.picture", { n: count, matrix: found.matrix, row: found.row });
  picture.setAttribute("aria-label", title);
}

function tell(found) {
  const { bits, bits_per_weight: all } = found;
  const shared = found.shared_by;
  setText(
    facts,
    t("row.facts", {
      bits: significant(all),
      own: bits,
      rest: significant(all - bits),
      shared: whole(shared),
      error: percent(found.error),
      storage: found.storage,
    }),
  );
  const bar = root.querySelector(".row-bits");
  const scales = t("row.scales", { bits: significant(all - bits) });
  // The sentence below says the same; a label that is cut off would say something else.
  const fits = bar.clientWidth * (1 - bits / all) > LABEL_EDGE + LABEL_CHARACTER * scales.length;
  bar.replaceChildren(
    el("span", "own-bits", t("row.own", { n: bits })),
    el("span", "scale-bits", fits ? scales : ""),
  );
  bar.style.setProperty("--own", (bits / all).toFixed(4));
}

function describe(before, after) {
  const rows = [...before].map((value, index) => {
    const row = el("tr");
    const cells = [whole(index), value.toFixed(4), after[index].toFixed(4), (after[index] - value).toFixed(4)];
    row.append(...cells.map((text) => el("td", "n", text)));
    return row;
  });
  twin.replaceChildren(...rows);
}

function ask() {
  field("shared").disabled = field("bits").value === "file";
  const body = { matrix: field("matrix").value, row: Number(field("number").value), weights: name() };
  setText(root.querySelector('output[for="row-number"]'), whole(body.row));
  question(async (signal) => {
    const found = await post("/api/v1/probes/weight-row", body, { signal });
    const [before, after] = [unpack(found.before), unpack(found.after)];
    draw(found, before, after);
    tell(found);
    describe(before.slice(0, SHOWN), after.slice(0, SHOWN));
    seen.add(body.weights);
    if (seen.has("int4-tensor") && seen.has("int4-g32")) did("scales");
  }, tellIn(status));
}

for (const id of ["matrix", "bits", "shared"]) field(id).addEventListener("change", ask);
field("number").addEventListener("input", ask);
onReady((ready) => {
  if (ready) ask();
  else if (!picture.childElementCount) setText(status, t("api.notReady"));
});
