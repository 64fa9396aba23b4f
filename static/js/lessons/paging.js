// What each cache of the comparison had set aside, to one scale, and how much of it holds something.

import { el, svg } from "../dom.js";
import { significant, t, whole } from "../texts.js";
import { onCompared } from "./variants.js";
import { positionsOf } from "./variants_view.js";

const root = document.getElementById("paging");
const table = root.querySelector("table");

function picture({ used, reserved }, most) {
  const drawn = svg("svg", {
    class: "hbar",
    viewBox: "0 0 100 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const width = (value) => Math.max(0.3, (100 * value) / most).toFixed(2);
  drawn.append(
    svg("rect", { class: "reserved", x: 0, y: 0, width: width(reserved), height: 10 }),
    svg("rect", { class: "used", x: 0, y: 0, width: width(used), height: 10 }),
  );
  const cell = el("td", "bar-cell");
  cell.append(drawn);
  return cell;
}

onCompared((variants) => {
  const found = variants.map((variant) => ({ name: variant.name, ...positionsOf(variant) }));
  const most = Math.max(...found.map((one) => one.reserved));
  root.querySelector(".paging-empty").hidden = true;
  table.parentElement.hidden = false;
  table.tBodies[0].replaceChildren(
    ...found.map((one) => {
      const row = el("tr");
      const name = el("th", "", one.name);
      name.scope = "row";
      const waste = 1 - one.used / one.reserved;
      row.append(
        name,
        picture(one, most),
        el("td", "n", t("paging.positions", { n: one.used })),
        el("td", "n", whole(one.reserved)),
        el("td", "n", `${significant(Math.max(0, 100 * waste))}%`),
      );
      return row;
    }),
  );
});
