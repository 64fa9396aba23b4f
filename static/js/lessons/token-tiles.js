// Tokens as tiles, and small things that the widgets of the lesson on tokens share.

import { el, svg } from "../dom.js";
import { visible } from "../texts.js";

const TINTS = 5;

/** Bytes as they are written: "e4 bd a0". */
export const spaced = (hex) => hex.match(/../g)?.join(" ") ?? "";

/** A tile: what the token spells, and its id below. `tag` is "button" where it can be chosen. */
export function tile(token, index, tag = "span") {
  const node = el(tag, "tile");
  node.dataset.tint = index % TINTS;
  if (token.special) node.dataset.special = "yes";
  node.append(el("span", "tile-piece", visible(token.piece)));
  if (token.id !== undefined) node.append(el("span", "tile-id", String(token.id)));
  return node;
}

/** Calls `then` when the reader has stopped typing. */
export function settled(field, then) {
  let timer = 0;
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(then, 200);
  });
}

/** A bar of a share between 0 and 1, as SVG with attributes only. */
export function bar(share, className) {
  const frame = { viewBox: "0 0 100 10", preserveAspectRatio: "none", class: "bar" };
  const picture = svg("svg", { ...frame, "aria-hidden": "true" });
  const width = Math.max(0.5, 100 * share).toFixed(2);
  picture.append(svg("rect", { width, height: 10, class: className }));
  return picture;
}

/**
 * Back, a slider and Next over the steps 0 to `count`. `show(step)` draws one; arrow keys step on
 * the slider, Space and Enter press the buttons.
 */
export function stepper(node, show) {
  const slider = node.querySelector("input");
  const [back, next] = ["back", "next"].map((name) => node.querySelector(`[data-step=${name}]`));
  let count = 0;

  function go(step) {
    const at = Math.min(count, Math.max(0, step));
    slider.value = at;
    const focused = document.activeElement;
    back.disabled = at === 0;
    next.disabled = at === count;
    // A button that can do no more hands the focus to the other one.
    if (focused === next && next.disabled) back.focus();
    if (focused === back && back.disabled) next.focus();
    slider.setAttribute("aria-valuetext", show(at));
  }
  slider.addEventListener("input", () => go(Number(slider.value)));
  back.addEventListener("click", () => go(Number(slider.value) - 1));
  next.addEventListener("click", () => go(Number(slider.value) + 1));

  return {
    /** Begins with `total` steps, at the first one. */
    begin(total) {
      count = total;
      slider.max = total;
      node.hidden = total === 0;
      go(0);
    },
  };
}
