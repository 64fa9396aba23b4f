// What the machine did in each phase: in a step at all, share of its arithmetic, of its bandwidth.

import { setText, sum, svg } from "../dom.js";
import { isOver, phases } from "../run.js";
import { onPaint, roofOf } from "../store.js";
import { phaseText } from "../strip.js";
import { percent, t } from "../texts.js";

const rows = document.getElementById("busy-rows");
const words = document.getElementById("busy-words");

/** Shares of one phase's time; a share is null where the roof or the cost is not known. */
function shares(steps, roof) {
  if (!steps.length) return null;
  const [first, last] = [steps[0], steps.at(-1)];
  const spent = sum(steps.map((step) => step.time_ms));
  const wall = last.start_ms + last.time_ms - first.start_ms;
  const known = roof && steps.every((step) => step.flops !== null);
  const rate = (name) => sum(steps.map((step) => step[name])) / (spent / 1e3);
  return {
    busy: Math.min(1, spent / wall),
    mfu: known ? rate("flops") / roof.peak : null,
    mbu: known ? rate("bytes") / roof.bandwidth : null,
  };
}

function bar(share, phase) {
  const picture = svg("svg", {
    class: "part-bar",
    viewBox: "0 0 100 6",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  const width = Math.min(100, 100 * share);
  picture.append(
    svg("path", { class: "part-all", d: "M0 5.5H100" }),
    svg("rect", { class: `fill-${phase}`, x: 0, y: 0, width, height: 6 }),
  );
  return picture;
}

function fill(name, { busy, mfu, mbu }, phase = name) {
  const cells = rows.querySelectorAll(`[data-phase="${name}"] td`);
  [busy, mfu, mbu].forEach((share, i) => {
    if (share === null) cells[i].replaceChildren("—");
    else cells[i].replaceChildren(bar(share, phase), percent(share));
  });
}

/** The step that the reader looks at, alone. */
function showStep({ run, selected }) {
  const step = run?.steps[selected];
  if (!step) return;
  const head = rows.querySelector('[data-phase="step"] th');
  setText(head, t("busy.step", { n: selected + 1, phase: phaseText(step) }));
  const phase = step.phase === "prefill" ? "prefill" : "decode";
  fill("step", shares([step], roofOf(run)), phase);
}

let shown = null;
let looked = null;

onPaint((store) => {
  const key = `${store.run?.id} ${store.selected} ${Boolean(store.roof)}`;
  if (looked === key) return;
  looked = key;
  showStep(store);
});

onPaint(({ run }) => {
  if (!run || !isOver(run) || run.error) return;
  const roof = roofOf(run);
  if (shown === run.id + Boolean(roof)) return;
  shown = run.id + Boolean(roof);
  const both = phases(run);
  const found = { prefill: shares(both.prefill, roof), decode: shares(both.decode, roof) };
  if (!found.prefill || !found.decode) return;
  fill("prefill", found.prefill);
  fill("decode", found.decode);
  const values = {
    prefillBusy: percent(found.prefill.busy),
    decodeBusy: percent(found.decode.busy),
  };
  if (found.decode.mfu === null) return setText(words, t("busy.unknown", values));
  setText(
    words,
    t("busy.words", {
      ...values,
      prefill: percent(found.prefill.mfu),
      decode: percent(found.decode.mfu),
      mbu: percent(found.decode.mbu),
    }),
  );
});
