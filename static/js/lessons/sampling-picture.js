// The whole vocabulary in one picture: probability against rank, both on logarithmic axes. What is
// kept is filled, what is cut is pale, and each filter stands where it cuts.

import { el, svg } from "../dom.js";
import { percent, t, whole } from "../texts.js";

const HEIGHT = 300;
const EDGE = { left: 52, right: 16, top: 30, bottom: 34 };
const LOWEST = -9; // log10 of the smallest probability that is drawn
const POINTS = 160;

/** About `POINTS` ranks, from 0 to the last, at even distances on a logarithmic axis. */
function places(count) {
  const last = Math.log(count);
  const all = Array.from({ length: POINTS + 1 }, (_, i) => Math.round(Math.exp((last * i) / POINTS)) - 1);
  return [...new Set(all)];
}

class Frame {
  constructor(width, count) {
    this.width = width;
    this.decades = Math.log10(count);
  }

  x(rank) {
    const inner = this.width - EDGE.left - EDGE.right;
    return EDGE.left + (inner * Math.log10(rank + 1)) / this.decades;
  }

  y(p) {
    const share = p > 0 ? Math.log10(p) / LOWEST : 1;
    return EDGE.top + Math.min(1, share) * (HEIGHT - EDGE.top - EDGE.bottom);
  }

  /** As far as it is above the axis: probabilities only fall from rank to rank. */
  line(points) {
    return points
      .filter(([, p]) => p >= 10 ** LOWEST)
      .map(([rank, p]) => `${this.x(rank).toFixed(1)},${this.y(p).toFixed(1)}`)
      .join(" ");
  }
}

function text(words, attributes) {
  const node = svg("text", attributes);
  node.textContent = words;
  return node;
}

function axes(frame) {
  const group = svg("g", { class: "axes" });
  for (let power = 0; power >= LOWEST; power -= 3) {
    const y = frame.y(10 ** power);
    group.append(svg("line", { x1: EDGE.left, x2: frame.width - EDGE.right, y1: y, y2: y }));
    const name = power ? `10⁻${"³⁶⁹"[-power / 3 - 1]}` : percent(1);
    group.append(text(name, { x: EDGE.left - 8, y: y + 4, "text-anchor": "end" }));
  }
  for (let power = 0; power <= frame.decades; power += 1) {
    const x = frame.x(10 ** power - 1);
    group.append(svg("line", { x1: x, x2: x, y1: EDGE.top, y2: HEIGHT - EDGE.bottom }));
    group.append(text(whole(10 ** power), { x, y: HEIGHT - 14, "text-anchor": "middle" }));
  }
  return group;
}

/** Where each filter cuts: [name, tokens left], only those that cut something. */
function cuts({ left }) {
  const stages = ["temperature", "topK", "topP", "minP"];
  return stages
    .slice(1)
    .map((name, i) => [name, left[name], left[stages[i]]])
    .filter(([, now, before]) => now < before);
}

const NAMES = { topK: "top-k", topP: "top-p", minP: "min-p" };

function cutLines(frame, shaped) {
  return cuts(shaped).flatMap(([name, count], i) => {
    const x = frame.x(count - 0.5);
    const right = x > frame.width - 110;
    const label = { x: x + (right ? -5 : 5), y: EDGE.top - 16 + 14 * i + 8 };
    return [
      svg("line", { class: "cut", x1: x, x2: x, y1: EDGE.top - 12, y2: HEIGHT - EDGE.bottom }),
      text(`${NAMES[name]}: ${whole(count)}`, { ...label, "text-anchor": right ? "end" : "start" }),
    ];
  });
}

/** Draws into `box`, an element; `own` is the model's distribution without any setting. */
export function drawPicture(box, own, shaped) {
  const count = own.weights.length;
  const frame = new Frame(Math.max(280, box.clientWidth), count);
  const ranks = places(count);
  const now = ({ weights, sums }, kept) => (rank) => [rank, weights[rank] / sums[kept - 1]];
  const inside = ranks.filter((rank) => rank < shaped.kept);
  if (inside.at(-1) !== shaped.kept - 1) inside.push(shaped.kept - 1);
  const outside = [shaped.kept - 1, ...ranks.filter((rank) => rank >= shaped.kept)];
  const curve = inside.map(now(shaped, shaped.kept));
  const above = curve.filter(([, p]) => p >= 10 ** LOWEST);
  const foot = `${frame.x(above.at(-1)[0]).toFixed(1)},${frame.y(0)} ${frame.x(0)},${frame.y(0)}`;
  const picture = svg("svg", {
    viewBox: `0 0 ${frame.width} ${HEIGHT}`,
    width: frame.width,
    height: HEIGHT,
    role: "img",
    "aria-label": t("sampling.picture", { kept: shaped.kept, n: count }),
  });
  picture.append(
    axes(frame),
    svg("polygon", { class: "kept", points: `${frame.line(curve)} ${foot}` }),
    svg("polyline", { class: "own", points: frame.line(ranks.map(now(own, count))) }),
    svg("polyline", { class: "gone", points: frame.line(outside.map(now(shaped, shaped.kept))) }),
    svg("polyline", { class: "now", points: frame.line(curve) }),
    ...cutLines(frame, shaped),
  );
  if (shaped.kept === 1) {
    picture.append(svg("circle", { class: "single", cx: frame.x(0), cy: frame.y(1), r: 5 }));
  }
  box.replaceChildren(picture, el("p", "soft axis-name", t("sampling.axes")));
}
