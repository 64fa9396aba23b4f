// Which positions each token still sees under a sliding window: the mask, drawn from its rule.

import { post } from "../api.js";
import { el, setText } from "../dom.js";
import { percent, t, visible } from "../texts.js";
import { did } from "./lesson.js";
import { onReady } from "./ready.js";
import { onTheme } from "./shades.js";
import { choose, compareNow } from "./variants.js";

// The rows of the picture; a longer prompt shows its first tokens.
const MOST_ROWS = 64;
const MOST_WIDTH = 480;

const root = document.getElementById("window");
const picture = root.querySelector("canvas");
const size = document.getElementById("window-size");
const sinks = document.getElementById("window-sinks");
const readout = root.querySelector(".window-readout");
const twin = root.querySelector(".window-twin tbody");
const prompt = document.getElementById("variants-prompt");
let pieces = [];

/** Whether a token at `query` still sees the one at `key`: itself, the last ones, the sinks. */
const sees = (query, key, window, first) => key <= query && (key > query - window || key < first);

const settings = () => {
  const window = Number(size.value);
  // There are always fewer sinks than positions in the window.
  return { window, first: Math.min(Number(sinks.value), window - 1) };
};

/** The cache's name, as a request says it. */
function nameOf({ window, first }) {
  return `paged-window-${window}${first ? `-sinks-${first}` : ""}`;
}

function draw() {
  const { window, first } = settings();
  const n = pieces.length;
  for (const [field, value] of [[size, window], [sinks, first]]) {
    setText(root.querySelector(`output[for="${field.id}"]`), String(value));
  }
  const context = picture.getContext("2d");
  const room = Math.min(picture.parentElement.clientWidth, MOST_WIDTH);
  const cell = Math.max(4, Math.floor(room / Math.max(n, 1)));
  const ratio = devicePixelRatio || 1;
  picture.width = picture.height = cell * n * ratio;
  picture.style.setProperty("width", `${cell * n}px`);
  context.scale(ratio, ratio);
  // A canvas takes no custom properties: the colours are those of the legend, in either theme.
  const of = (key) => getComputedStyle(root.querySelector(`.key.${key}`)).backgroundColor;
  const [seenPaint, sinkPaint, gonePaint] = ["of-answer", "of-sink", "of-nothing"].map(of);
  let seen = 0;
  for (let query = 0; query < n; query++) {
    for (let key = 0; key <= query; key++) {
      const there = sees(query, key, window, first);
      seen += there;
      const bySink = there && key <= query - window;
      context.fillStyle = bySink ? sinkPaint : there ? seenPaint : gonePaint;
      context.fillRect(key * cell, query * cell, cell - 1, cell - 1);
    }
  }
  const all = (n * (n + 1)) / 2;
  const last = Math.min(n, window + Math.min(first, Math.max(0, n - window)));
  const share = percent(all ? seen / all : 0);
  setText(readout, t("window.said", { n: last, total: n, share, name: nameOf({ window, first }) }));
  picture.removeAttribute("aria-labelledby");
  picture.setAttribute("aria-label", t("window.picture", { n, window, sinks: first }));
  describe(window, first);
}

/** The same for the last token, in words: what it sees and what it does not. */
function describe(window, first) {
  const last = pieces.length - 1;
  const rows = pieces.map((piece, key) => {
    const row = el("tr");
    const there = sees(last, key, window, first);
    const why = there ? (key <= last - window ? "window.sink" : "window.seen") : "window.gone";
    row.append(el("td", "n", String(key + 1)), el("td", "", visible(piece)), el("td", "", t(why)));
    return row;
  });
  twin.replaceChildren(...rows);
}

async function tokenize() {
  try {
    const { tokens } = await post("/api/v1/tokenize", { text: prompt.value });
    pieces = tokens.slice(0, MOST_ROWS).map((token) => token.piece);
    draw();
  } catch (problem) {
    setText(readout, problem.message);
  }
}

for (const field of [size, sinks]) field.addEventListener("input", draw);
prompt.addEventListener("change", tokenize);
addEventListener("resize", draw);
onTheme(draw);

root.querySelector(".use").addEventListener("click", () => {
  choose("c", nameOf(settings()));
  did("window");
  document.getElementById("variants").scrollIntoView({ block: "start" });
  compareNow();
});

onReady((ready) => {
  if (ready) tokenize();
  else if (!pieces.length) setText(readout, t("api.notReady"));
});
