// Two runs side by side: their numbers, both strips on one time axis, their texts, their settings.

import { el, setText, sum, svg, tableCell, tableRow } from "../dom.js";
import { gaps, phases, predictedItl, predictedTtft, ttft, usualGap } from "../run.js";
import { Drawing } from "../strip.js";
import { laneOf } from "../store.js";
import { percent, significant, t, time, times, visible, whole } from "../texts.js";
import { shared, sharedPrefix } from "./diff.js";
import { promptOf } from "./saved.js";

const NONE = "—";
const orNone = (value, format) => (value === null ? NONE : format(value));

/** From the engine's receiving the request to the last token or step, in ms. */
function wholeTime({ steps, tokens }) {
  const ends = [tokens.at(-1)?.time_ms ?? 0, steps.length ? steps.at(-1).start_ms + steps.at(-1).time_ms : 0];
  return Math.max(...ends) || null;
}

/** Tokens a second after the first one. */
function tokenRate(run) {
  const values = gaps(run);
  return values.length && sum(values) > 0 ? values.length / (sum(values) / 1e3) : null;
}

const predicted = (run, of) => of(run, "typical") ?? of(run, "ideal");

/** [name, kind of number, how to write it, value of a run]; times can be set beside each other. */
const NUMBERS = [
  ["compare.ttft", "measured", time, ttft],
  ["compare.ttft", "predicted", time, (run) => predicted(run, predictedTtft)],
  ["compare.itl", "measured", time, usualGap],
  ["compare.itl", "predicted", time, (run) => predicted(run, predictedItl)],
  ["compare.rate", "measured", significant, tokenRate],
  ["compare.whole", "measured", time, wholeTime],
  ["compare.prompt", "counted", whole, (run) => run.accepted?.prompt_tokens ?? null],
  ["compare.tokens", "counted", whole, (run) => run.tokens.length],
  ["compare.steps", "counted", whole, (run) => phases(run).decode.length],
];

/** How B stands to A. */
function beside(a, b) {
  if (a === null || b === null || a === 0) return NONE;
  const ratio = b / a;
  if (Math.abs(ratio - 1) < 0.005) return t("compare.same");
  if (ratio >= 2) return t("compare.times", { ratio: times(ratio) });
  return t(ratio > 1 ? "compare.more" : "compare.less", { share: percent(Math.abs(ratio - 1)) });
}

function row([name, ...cells], className = "") {
  const node = tableRow(name, cells.map((cell) => tableCell(cell)));
  node.className = className;
  return node;
}

function table(caption, columns, rows, className = "") {
  const node = el("table", `compare-table ${className}`);
  const top = el("tr");
  top.append(el("td"));
  for (const column of columns) {
    const cell = el("th", "", column);
    cell.scope = "col";
    top.append(cell);
  }
  const head = el("thead");
  head.append(top);
  const body = el("tbody");
  body.append(...rows);
  node.append(el("caption", "hear", caption), head, body);
  return node;
}

/** A table that scrolls in itself where the window is narrow, by keyboard too. */
function scrolling(name, content) {
  const place = el("div", "scroll");
  place.setAttribute("role", "region");
  place.setAttribute("aria-label", name);
  place.tabIndex = 0;
  place.append(content);
  return place;
}

function numbers(a, b) {
  const rows = NUMBERS.map(([name, kind, format, value]) => {
    const [of, to] = [value(a), value(b)];
    const line = row([t(name), orNone(of, format), orNone(to, format), beside(of, to)], kind);
    line.firstChild.append(" ", el("span", "kind", t(`kind.${kind}`)));
    return line;
  });
  const columns = ["A", "B", t("compare.beside")];
  return table(t("compare.numbers"), columns, rows, "numbers");
}

/** Both strips with the same scale, so that lengths can be compared by eye. */
function strips(a, b) {
  const place = el("div", "compare-strips");
  const end = Math.max(wholeTime(a) ?? 1, wholeTime(b) ?? 1);
  for (const [name, run] of [["A", a], ["B", b]]) {
    const line = el("div", "compare-strip");
    const picture = svg("svg", {
      class: "times",
      viewBox: `0 0 ${end} 40`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": t("compare.strip", {
        name,
        ttft: orNone(ttft(run), time),
        whole: orNone(wholeTime(run), time),
      }),
    });
    const drawing = new Drawing(picture);
    drawing.clear(run);
    drawing.add(run.steps);
    drawing.waiting(run.accepted?.tokenize_ms ?? 0, run.steps[0]?.start_ms ?? 0);
    drawing.layers.ghost.remove();
    drawing.layers.envelope.remove();
    line.append(el("b", "", name), picture);
    place.append(line);
  }
  const axis = el("p", "axis compare-axis");
  axis.append(el("span", "", "0"), el("span", "", time(end)));
  place.append(axis);
  return place;
}

/** One answer; what the other does not have is marked, and where they part. */
function answer(name, run, marks, from) {
  const place = el("div", "compare-text");
  const text = el("p", "compare-tokens");
  run.tokens.forEach((token, i) => {
    const node = el(marks[i] ? "span" : "mark", i === from ? "first" : "", token.text);
    if (i === from) node.title = t("compare.parts", { piece: visible(token.piece), n: i + 1 });
    text.append(node);
  });
  if (run.done?.tail) text.append(run.done.tail);
  place.append(el("h3", "", t("compare.answer", { name })), text);
  return place;
}

function texts(a, b) {
  const from = sharedPrefix(a.tokens, b.tokens);
  const [inB, inA] = shared(a.tokens, b.tokens);
  const equal = from === a.tokens.length && from === b.tokens.length;
  const piece = (run) => (run.tokens[from] ? visible(run.tokens[from].piece) : t("compare.end"));
  const told = equal
    ? t("compare.equal")
    : t("compare.diverge", { n: from + 1, a: piece(a), b: piece(b) });
  const both = el("div", "compare-texts");
  both.append(answer("A", a, inB, from), answer("B", b, inA, from));
  return [el("p", "prose small", told), both];
}

const setting = (name) => ({ request }) => String(request[name] ?? "") || NONE;

/** What a run was asked for and where it ran, in words. */
const SETTINGS = [
  ["compare.setting.prompt", ({ request }) => promptOf(request)],
  ["compare.setting.mode", ({ request }) => t(request.messages ? "compare.chat" : "compare.plain")],
  ["compare.setting.max_tokens", setting("max_tokens")],
  ["compare.setting.temperature", setting("temperature")],
  ["compare.setting.top_k", setting("top_k")],
  ["compare.setting.top_p", setting("top_p")],
  ["compare.setting.min_p", setting("min_p")],
  ["compare.setting.repetition_penalty", setting("repetition_penalty")],
  ["compare.setting.seed", ({ accepted }) => String(accepted?.seed ?? NONE)],
  ["compare.setting.stop", setting("stop")],
  ["compare.setting.lane", (run) => laneOf(run)?.name ?? run.accepted?.dtype ?? NONE],
  ["compare.setting.prefix_cache", ({ request }) => t(request.prefix_cache ? "compare.on" : "compare.off")],
  ["compare.setting.speculation", ({ request }) => request.speculation?.method ?? NONE],
  ["compare.setting.model", ({ facts }) => facts?.model_name ?? NONE],
  ["compare.setting.machine", ({ facts }) => facts?.device_name ?? NONE],
];

function settings(a, b) {
  const rows = SETTINGS.map(([name, read]) => [t(name), read(a), read(b)]).filter(
    ([, of, to]) => of !== to,
  );
  if (!rows.length) return el("p", "soft", t("compare.settings.same"));
  const columns = ["A", "B"];
  const differing = rows.map((cells) => row(cells));
  return scrolling(t("compare.settings"), table(t("compare.settings"), columns, differing));
}

/** Steps of few pixels get thin edges or none: their edges would cover them. */
function thinEdges(place) {
  for (const picture of place.querySelectorAll(".compare-strip .times")) {
    const blocks = picture.querySelector(".layer-blocks").getBoundingClientRect();
    const count = picture.querySelectorAll(".block").length;
    const pixels = blocks.width / count;
    picture.dataset.dense = pixels < 2 ? "solid" : String(pixels < 6);
  }
}

/** Fills `place` with the comparison of two runs that are over. */
export function compare(place, a, b) {
  const heading = (key) => el("h2", "", t(key));
  place.replaceChildren(
    scrolling(t("compare.numbers"), numbers(a, b)),
    heading("compare.time"),
    strips(a, b),
    heading("compare.texts"),
    ...texts(a, b),
    heading("compare.settings"),
    settings(a, b),
  );
  thinEdges(place);
  setText(document.getElementById("announce"), t("compare.ready"));
}
