// A vector as a row of bars around zero: up is positive, down is negative.

import { svg } from "../dom.js";

const HEIGHT = 48;

/** The largest size of a number in any of `vectors`, so that pictures can share a scale. */
export const reach = (...vectors) =>
  Math.max(1e-9, ...vectors.map((values) => values.reduce((most, v) => Math.max(most, Math.abs(v)), 0)));

/** Draws `values` into an empty or drawn `<svg>`; `most` is the value that fills half its height. */
export function vectorBars(picture, values, most = reach(values)) {
  const half = HEIGHT / 2;
  picture.setAttribute("viewBox", `0 0 ${values.length} ${HEIGHT}`);
  picture.setAttribute("preserveAspectRatio", "none");
  let path = "";
  values.forEach((value, i) => {
    const length = (value / most) * (half - 1);
    path += `M${i + 0.15} ${half}h0.7v${(-length).toFixed(2)}h-0.7z`;
  });
  picture.replaceChildren(
    svg("path", { d: `M0 ${half}H${values.length}`, class: "zero" }),
    svg("path", { d: path, class: "bars" }),
  );
}
