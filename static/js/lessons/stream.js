// The residual stream at one token: how long it is after each layer, and what is added to it.

import { setText, svg, tableRow } from "../dom.js";
import { significant, t, whole } from "../texts.js";
import { text } from "./inside.js";
import { mountPositions, onPosition } from "./layers.js";

const EDGE = { left: 52, right: 10, top: 24, bottom: 40 };
const HEIGHT = 280;
const LABELLED = 5; // a layer's number under every fifth

const widget = document.getElementById("stream");
const part = (name) => widget.querySelector(`[data-${name}]`);
const picture = part("picture");
let position = 0;

function label(x, y, words, anchor, name) {
  const node = svg("text", { x, y, "text-anchor": anchor, class: name });
  node.textContent = words;
  return node;
}

/** Powers of ten that hold all values; sizes differ a thousandfold, so the axis is logarithmic. */
function range(values) {
  const real = values.filter((value) => value > 0);
  const low = Math.floor(Math.log10(Math.min(...real)));
  return [low, Math.max(low + 1, Math.ceil(Math.log10(Math.max(...real))))];
}

function draw({ residual, attention, mlp }) {
  const width = Math.max(280, picture.parentElement.clientWidth);
  const [low, high] = range([...residual, ...attention, ...mlp]);
  const [right, bottom] = [width - EDGE.right, HEIGHT - EDGE.bottom];
  const slot = (right - EDGE.left) / residual.length;
  const x = (row) => EDGE.left + (row + 0.5) * slot;
  const y = (value) =>
    bottom - ((Math.log10(Math.max(value, 10 ** low)) - low) / (high - low)) * (bottom - EDGE.top);
  const parts = [];
  for (let power = low; power <= high; power += 1) {
    const at = y(10 ** power);
    parts.push(svg("path", { class: "grid", d: `M${EDGE.left} ${at}H${right}` }));
    parts.push(label(EDGE.left - 6, at + 4, significant10(power), "end", "tick"));
  }
  const bar = Math.max(1.5, slot * 0.34);
  attention.forEach((value, layer) => {
    const pairs = [[value, "attention", -bar], [mlp[layer], "ffn", 0]];
    for (const [length, name, shift] of pairs) {
      const top = y(length);
      const box = { x: x(layer + 1) + shift, y: top, width: bar, height: bottom - top };
      parts.push(svg("rect", { class: `added-${name}`, ...box }));
    }
    if (layer % LABELLED === 0) {
      parts.push(label(x(layer + 1), bottom + 16, whole(layer), "middle", "tick"));
    }
  });
  const line = residual.map((value, row) => `${x(row).toFixed(1)} ${y(value).toFixed(1)}`);
  parts.push(svg("path", { class: "stream-line", d: `M${line.join("L")}` }));
  parts.push(label((EDGE.left + right) / 2, HEIGHT - 6, t("stream.x"), "middle", "axis"));
  parts.push(label(4, 13, t("stream.y"), "start", "axis"));
  picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  picture.setAttribute("width", width);
  picture.setAttribute("height", HEIGHT);
  picture.replaceChildren(...parts);
}

const significant10 = (power) => whole(10 ** power);

const row = (name, values) =>
  tableRow(name, values.map((value) => (value === null ? "—" : significant(value))));

function table({ residual, attention, mlp }) {
  part("rows").replaceChildren(
    row(t("lens.embedding"), [null, null, residual[0]]),
    ...attention.map((value, layer) =>
      row(t("lens.layer", { layer }), [value, mlp[layer], residual[layer + 1]]),
    ),
  );
}

function paint() {
  const { answer } = text();
  const at = (rows) => rows.map((values) => values[position]);
  const norms = { residual: at(answer.residual), attention: at(answer.attention), mlp: at(answer.mlp) };
  draw(norms);
  table(norms);
  const largest = Math.max(...norms.residual);
  const layer = norms.residual.indexOf(largest) - 1;
  setText(part("facts"), t("stream.facts", {
    first: significant(norms.residual[0]),
    last: significant(norms.residual.at(-1)),
    largest: significant(largest),
    where: layer < 0 ? t("lens.embedding") : t("lens.layer", { layer }),
  }));
}

mountPositions(part("position"));
onPosition((chosen) => {
  position = chosen;
  paint();
});
new ResizeObserver(() => text() && paint()).observe(picture.parentElement);
