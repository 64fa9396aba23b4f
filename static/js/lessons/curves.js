// A small chart of measured curves, drawn in pixels so that its labels keep their size. Both axes
// begin at zero. The table that says the same belongs to whoever draws it.

import { svg } from "../dom.js";

const EDGE = { left: 58, right: 14, top: 26, bottom: 42 };
const MOST_TICKS = 5;

/** A step of 1, 2 or 5 times a power of ten, at most MOST_TICKS of which fit below `high`. */
function niceStep(high) {
  const rough = high / MOST_TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough * (1 - 1e-9));
}

function ticks(high) {
  const step = niceStep(high);
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
}

const label = (x, y, text, anchor, name = "tick") => {
  const node = svg("text", { x, y, "text-anchor": anchor, class: name });
  node.textContent = text;
  return node;
};

/**
 * Draws `series` ({name, className, points: [[x, y], …]}) into the SVG element `picture`.
 * `words` has `x`, `y` (what the axes are), `xTick(value)` and `yTick(value)`; `mark` is
 * {x, text} for an upright line, or null.
 */
export function drawCurves(picture, series, words, mark = null) {
  const width = Math.max(260, picture.parentElement.clientWidth);
  const height = Math.min(300, Math.max(210, width * 0.5));
  const all = series.flatMap(({ points }) => points);
  const high = { x: Math.max(1, ...all.map(([x]) => x)), y: Math.max(1e-9, ...all.map(([, y]) => y)) };
  high.y *= 1.06;
  const right = width - EDGE.right;
  const bottom = height - EDGE.bottom;
  const px = (x) => EDGE.left + (x / high.x) * (right - EDGE.left);
  const py = (y) => bottom - (y / high.y) * (bottom - EDGE.top);
  picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
  picture.setAttribute("width", width);
  picture.setAttribute("height", height);

  const parts = [];
  for (const value of ticks(high.x)) {
    parts.push(svg("path", { class: "grid", d: `M${px(value)} ${EDGE.top}V${bottom}` }));
    parts.push(label(px(value), bottom + 17, words.xTick(value), "middle"));
  }
  for (const value of ticks(high.y)) {
    parts.push(svg("path", { class: "grid", d: `M${EDGE.left} ${py(value)}H${right}` }));
    parts.push(label(EDGE.left - 7, py(value) + 4, words.yTick(value), "end"));
  }
  parts.push(label((EDGE.left + right) / 2, height - 6, words.x, "middle", "axis"));
  parts.push(label(4, 13, words.y, "start", "axis"));
  if (mark) {
    const late = mark.x > high.x / 2;
    parts.push(svg("path", { class: "mark", d: `M${px(mark.x)} ${EDGE.top}V${bottom}` }));
    const place = px(mark.x) + (late ? -6 : 6);
    parts.push(label(place, EDGE.top + 12, mark.text, late ? "end" : "start", "axis"));
  }
  for (const { name, className, points } of series) {
    if (!points.length) continue;
    const path = points.map(([x, y]) => `${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("L");
    parts.push(svg("path", { class: `curve ${className}`, d: `M${path}` }));
    const [x, y] = points.at(-1);
    parts.push(svg("circle", { class: `end ${className}`, cx: px(x), cy: py(y), r: 3.5 }));
    const clear = Math.max(EDGE.top + 12, py(y) - 9);
    parts.push(label(px(x) - 2, clear, name, "end", `name ${className}`));
  }
  picture.replaceChildren(...parts);
}
