// The forms of a comparison beside each other: bytes and speed to scale, the text with what differs,
// and a bar at every token for how far the distribution over the next one has moved.

import { el, setText, svg, tableRow } from "../dom.js";
import { rove } from "../roving.js";
import { bytes, percent, significant, t, time, visible, whole } from "../texts.js";

const rows = document.querySelector("#variants .variants-rows");
const sizes = document.querySelector("#variants .variants-sizes");
const byWeights = document.getElementById("variants").dataset.kind === "weights";
const LETTERS = ["A", "B", "C"];
// A bar of this height is full: the likeliest tokens have changed altogether there.
const FULL_NATS = 3;

/** Bytes that a form takes: its weights, or what its cache holds at the end of the run. */
export function bytesOf({ run, found }) {
  if (!byWeights) return run.steps.at(-1).kv_bytes;
  // A lane that others had closed by the time the run was told is known from the judgement only.
  return run.accepted.lane?.weight_bytes ?? found?.weight_bytes ?? 0;
}

/** Positions that a form's cache has set aside for the run, and those that hold something. */
export function positionsOf({ run }) {
  const last = run.steps.at(-1);
  return { used: last.own_kv_tokens, reserved: last.own_kv_blocks * last.kv_block_tokens };
}

function bar(share) {
  const picture = svg("svg", {
    class: "hbar solid",
    viewBox: "0 0 100 10",
    preserveAspectRatio: "none",
    "aria-hidden": "true",
  });
  picture.append(svg("rect", { x: 0, y: 0, height: 10, width: (100 * share).toFixed(2) }));
  const cell = el("td", "bar-cell");
  cell.append(picture);
  return cell;
}

function heading(...names) {
  const row = el("tr");
  for (const name of names) {
    const cell = el("th", name.shape ?? "", name.text);
    cell.scope = "col";
    row.append(cell);
  }
  const head = el("thead");
  head.append(row);
  return head;
}

function sizesTable(variants) {
  const most = Math.max(...variants.map(bytesOf));
  const n = (key) => ({ text: t(key), shape: "n" });
  const table = el("table", "bars");
  table.append(
    heading(
      { text: t("variants.form") },
      { text: t("variants.picture"), shape: "bar-cell" },
      n(byWeights ? "variants.weights" : "variants.cache"),
      n("variants.each"),
      n("variants.itl"),
      n("variants.kl"),
      n("variants.top"),
    ),
  );
  const body = el("tbody");
  variants.forEach((variant, index) => {
    const { found, run, itl } = variant;
    const name = el("span");
    name.append(el("b", "", LETTERS[index]), ` ${variant.name}`);
    const each = byWeights
      ? found && t("variants.bits", { bits: significant(found.bits_per_weight) })
      : bytes(run.steps.at(-1).kv_bytes / run.steps.at(-1).own_kv_tokens);
    const cells = [
      bar(bytesOf(variant) / most),
      bytes(bytesOf(variant)),
      each || "…",
      itl === null ? "—" : time(itl),
      found ? significant(found.mean_kl) : "…",
      found ? percent(found.top1_agreement) : "…",
    ];
    body.append(tableRow(name, cells));
  });
  table.append(body);
  return table;
}

/** The first token at which a run says something else than the first form; its length if none. */
function parting(tokens, first) {
  const at = tokens.findIndex((token, index) => token.id !== first[index]?.id);
  return at < 0 ? tokens.length : at;
}

function words(variant, first, index) {
  const { tokens } = variant.run;
  const at = parting(tokens, first.run.tokens);
  const text = el("p", "variant-text prose");
  const { tail = "" } = variant.run.done ?? {};
  const joined = (part) => part.map((token) => token.text).join("");
  // Answers often begin with line ends, which would show as a hole.
  text.append(el("span", "", joined(tokens.slice(0, at)).trimStart()));
  const other = joined(tokens.slice(at)) + tail;
  if (index && at < tokens.length) {
    const changed = el("ins", "", other);
    changed.setAttribute("aria-label", t("variants.parts", { n: at + 1, text: other }));
    text.append(changed);
  } else text.append(el("span", "", other));
  const said = el("p", "soft small");
  if (index) {
    setText(said, at < tokens.length ? t("variants.parting", { n: at + 1 }) : t("variants.same"));
  } else setText(said, t("variants.first"));
  const both = el("div");
  both.append(said, text);
  return both;
}

function bars(variant, pieces, promptTokens) {
  const { kl, same_top: same } = variant.found;
  const row = el("div", "kl-bars");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", t("variants.bars", { name: variant.name }));
  const readout = el("p", "kl-readout soft small");
  kl.forEach((value, index) => {
    const mark = el("span", index < promptTokens ? "kl prompt" : "kl");
    mark.setAttribute("role", "img");
    mark.style.setProperty("--kl", Math.min(1, Math.sqrt(value / FULL_NATS)).toFixed(3));
    mark.dataset.same = same[index] ? "yes" : "no";
    const after = visible(pieces[index] ?? "");
    const said = t(same[index] ? "variants.kept" : "variants.moved", {
      n: index + 1,
      piece: after,
      kl: significant(value),
    });
    mark.setAttribute("aria-label", said);
    mark.dataset.said = said;
    mark.tabIndex = -1;
    row.append(mark);
  });
  const worst = kl.indexOf(Math.max(...kl));
  const rest = () => setText(readout, t("variants.worst", { said: row.children[worst].dataset.said }));
  rove(row, ".kl", (mark) => (mark ? setText(readout, mark.dataset.said) : rest())).refresh();
  rest();
  const both = el("div");
  both.append(row, readout);
  return both;
}

function twin(variant, pieces) {
  const details = el("details", "twin");
  details.append(el("summary", "", t("variants.table")));
  const table = el("table");
  table.append(
    heading(
      { text: t("variants.position"), shape: "n" },
      { text: t("variants.token") },
      { text: t("variants.kl"), shape: "n" },
      { text: t("variants.topToken") },
    ),
  );
  const body = el("tbody");
  variant.found.kl.forEach((value, index) => {
    const row = el("tr");
    row.append(
      el("td", "n", whole(index + 1)),
      el("td", "", visible(pieces[index] ?? "")),
      el("td", "n", significant(value)),
      el("td", "", t(variant.found.same_top[index] ? "variants.yes" : "variants.no")),
    );
    body.append(row);
  });
  table.append(body);
  const scroll = el("div", "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", t("variants.bars", { name: variant.name }));
  scroll.append(table);
  details.append(scroll);
  return details;
}

function section(variant, first, index) {
  const block = el("div", "variant");
  block.dataset.form = variant.name;
  const title = el("h3");
  title.append(el("b", "", LETTERS[index]), ` ${variant.name}`);
  block.append(title, words(variant, first, index));
  if (index && variant.found) {
    const { prompt_pieces: prompt } = first.run.accepted;
    const pieces = [...prompt, ...first.run.tokens.map((token) => token.piece)];
    block.append(bars(variant, pieces, prompt.length), twin(variant, pieces));
  }
  return block;
}

/** Draws the forms that are there so far. */
export function showVariant(variants) {
  sizes.replaceChildren(sizesTable(variants));
  sizes.hidden = false;
  rows.replaceChildren(...variants.map((variant, index) => section(variant, variants[0], index)));
}

/** Draws a comparison anew; an empty list clears it. */
export function showVariants(variants) {
  sizes.hidden = !variants.length;
  rows.replaceChildren();
  if (variants.length) showVariant(variants);
}
