// The table of contents: how far this reader is, and what to do with that.

import { setText } from "../dom.js";
import { t } from "../texts.js";
import { countDone, exported, onElsewhere, reset } from "./progress.js";

function paint() {
  for (const item of document.querySelectorAll("[data-lesson]")) {
    const n = Number(item.dataset.tasks);
    const done = Math.min(n, countDone(item.dataset.lesson));
    const meter = item.querySelector("meter");
    meter.value = done;
    setText(item.querySelector(".state"), t("progress.tasks", { done, n }));
    item.dataset.complete = done === n ? "yes" : "no";
  }
}

document.getElementById("reset").addEventListener("click", () => {
  reset();
  paint();
  setText(document.getElementById("announce"), t("progress.reset"));
});

document.getElementById("export").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([exported()], { type: "application/json" }));
  link.download = "first-token-progress.json";
  link.click();
  URL.revokeObjectURL(link.href);
});

paint();
onElsewhere(paint);
