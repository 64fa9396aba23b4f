// What lies near what: neighbours, sums and maps in the model's own table and in word vectors.

import { post, Problem } from "../api.js";
import { el, setText, svg } from "../dom.js";
import { percent, t, visible } from "../texts.js";
import { did } from "./lesson.js";
import { onReady } from "./ready.js";
import { idOfWord } from "./vector-tokens.js";

const at = (id) => document.getElementById(id);
const split = (text) =>
  text
    .split(/[,，、\s]+/)
    .map((word) => word.trim().toLowerCase())
    .filter(Boolean);
const done = { neighbours: false, sum: false };

async function say(node, work) {
  try {
    await work();
    setText(node, "");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    setText(node, error.message);
  }
}

/** The ids of words in the model's vocabulary, each a single token. */
async function idsOfWords(words) {
  const ids = await Promise.all(words.map(idOfWord));
  if (ids.includes(null)) throw new Problem(t("words.none"));
  return ids;
}

function table(node, items) {
  node.replaceChildren(
    ...items.map(([word, cosine]) => {
      const line = el("tr");
      const bar = svg("svg", { viewBox: "0 0 100 8", class: "bar", "aria-hidden": "true" });
      bar.append(svg("rect", { width: Math.max(0, cosine * 100), height: 8 }));
      const cell = el("td");
      cell.append(bar);
      line.append(el("th", "piece", word), el("td", "n", cosine.toFixed(3)), cell);
      line.firstChild.scope = "row";
      return line;
    }),
  );
}

async function find() {
  const plus = split(at("words-plus").value);
  const minus = split(at("words-minus").value);
  await say(at("words-problem"), async () => {
    const { near } = await post("/api/v1/words/near", { plus, minus, k: 8 });
    table(at("words-glove"), near.map(({ word, cosine }) => [word, cosine]));
    at("words-model").replaceChildren();
    const question = { plus: await idsOfWords(plus), minus: await idsOfWords(minus), k: 8 };
    const { neighbours } = await post("/api/v1/probes/analogy", question);
    table(at("words-model"), neighbours.map(({ piece, cosine }) => [visible(piece), cosine]));
  });
  return plus.length + minus.length;
}

async function findByReader() {
  const count = await find();
  if (at("words-problem").textContent) return;
  done[count > 1 ? "sum" : "neighbours"] = true;
  if (done.sum && done.neighbours) did("neighbours");
}

const MARGIN = 60;
const EDGE = 6;

/**
 * Where a name of `length` and `size` stands clear of points and other names: right, left, above or
 * below its point. Where nothing is clear it stands in the first place inside the picture.
 */
function place({ length, size }, [x, y], points, boxes, width) {
  const half = size * 0.3;
  const tries = [
    [x + 8, y + half],
    [x - 8 - length, y + half],
    [x - length / 2, y - 9],
    [x - length / 2, y + size + 4],
  ];
  const isInside = ([left]) => left > EDGE && left + length < width - EDGE;
  const isFree = ([left, ny]) =>
    !points.some(([a, b]) => a > left && a < left + length && Math.abs(b - ny + half) < size * 0.65) &&
    !boxes.some(([l, r, b]) => l < left + length && r > left && Math.abs(b - ny) < size * 1.1);
  const inside = tries.filter(isInside);
  const [left, ny] = inside.find(isFree) ?? inside[0] ?? [EDGE, tries[3][1]];
  boxes.push([left, left + length, ny]);
  return [left, ny];
}

function drawMap({ words, coordinates, cosines, explained }) {
  const picture = at("map-picture");
  const [width, height] = [640, 400];
  const xs = coordinates.map(([x]) => x);
  const ys = coordinates.map(([, y]) => y);
  const scale = (values, size) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return (value) => MARGIN + ((value - low) / (high - low || 1)) * (size - 2 * MARGIN);
  };
  const [px, py] = [scale(xs, width), scale(ys, height)];
  const points = words.map((_, i) => [px(xs[i]), py(ys[i])]);
  const boxes = [];
  const names = words.map((word) => {
    const name = svg("text", {});
    name.textContent = word;
    return name;
  });
  picture.replaceChildren(...points.map(([cx, cy]) => svg("circle", { cx, cy, r: 4 })), ...names);
  const size = parseFloat(getComputedStyle(names[0]).fontSize);
  for (const [i, name] of names.entries()) {
    const length = name.getComputedTextLength();
    const [x, y] = place({ length, size }, points[i], points, boxes, width);
    name.setAttribute("x", x);
    name.setAttribute("y", y);
  }
  const total = explained[0] + explained[1];
  const title = t("words.mapTitle", { n: words.length, words: words.join(", ") });
  setText(at("map-caption"), `${title} ${t("words.map", { share: percent(total) })}`);
  const head = el("tr");
  head.append(el("td"), ...words.map((word) => el("th", "n", word)));
  const lines = words.map((word, i) => {
    const line = el("tr");
    line.append(el("th", "", word), ...cosines[i].map((value) => el("td", "n", value.toFixed(2))));
    return line;
  });
  at("map-cosines").replaceChildren(head, ...lines);
}

async function map() {
  const words = split(at("map-words").value);
  await say(at("map-problem"), async () => {
    if (at("map-table").value === "glove") {
      drawMap(await post("/api/v1/words/map", { words }));
      return;
    }
    const answer = await post("/api/v1/probes/map", { token_ids: await idsOfWords(words) });
    drawMap({ ...answer, words });
  });
}

at("words-form").addEventListener("submit", (event) => {
  event.preventDefault();
  findByReader();
});
at("map-form").addEventListener("submit", (event) => {
  event.preventDefault();
  map();
});
at("map-table").addEventListener("change", map);
for (const pick of document.querySelectorAll("[data-plus]")) {
  pick.addEventListener("click", () => {
    at("words-plus").value = pick.dataset.plus;
    at("words-minus").value = pick.dataset.minus;
    findByReader();
  });
}
onReady((ready) => ready && find());
map();
