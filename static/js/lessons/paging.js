// What each cache of the comparison had set aside, to one scale, and how much of it holds something.

import { el, svg, tableRow } from "../dom.js";
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
      const waste = 1 - one.used / one.reserved;
      return tableRow(one.name, [
        picture(one, most),
        t("paging.positions", { n: one.used }),
        whole(one.reserved),
        `${significant(Math.max(0, 100 * waste))}%`,
      ]);
    }),
  );
});
