// A word from its bytes to its tokens, merge by merge.

import { post } from "../api.js";
import { el, setText, tableCell, tableRow } from "../dom.js";
import { t, visible, whole } from "../texts.js";
import { latest, tellIn } from "./latest.js";
import { did } from "./lesson.js";
import { settled, stepper, tile } from "./token-tiles.js";

const find = (id) => document.getElementById(id);
const field = find("merges-word");
const choice = find("merges-tokenizer");
const parts = find("merges-parts");
const ask = latest();
let steps = [];
let moved = false;

/** All states of a text, the first without any merge: [{parts, at, merge}], at: what was made. */
function statesOf(words) {
  let letters = 0;
  // A part keeps the tint of its first letter, whatever is merged around it.
  const done = words.map((word) => word.start.map((part) => ({ ...part, first: letters++ })));
  const all = () => done.flat();
  const states = [{ parts: all(), at: -1, merge: null }];
  words.forEach((word, number) => {
    const before = () => done.slice(0, number).flat().length;
    for (const merge of word.merges) {
      const now = [...done[number]];
      const made = { ...merge.token, first: now[merge.at].first };
      const [left, right] = now.splice(merge.at, 2, made);
      done[number] = now;
      states.push({ parts: all(), at: before() + merge.at, merge: { ...merge, left, right } });
    }
  });
  return states;
}

function line({ merge }, step) {
  if (!merge) return t("merge.start", { word: visible(field.value) });
  const [left, right, piece] = [merge.left, merge.right, merge.token].map((part) =>
    visible(part.piece),
  );
  const made = t("merge.step", { step, total: steps.length - 1, left, right, piece });
  return `${made} · ${t("merge.rank", { rank: whole(merge.rank) })}`;
}

const walk = stepper(find("merges-stepper"), (step) => {
  const state = steps[step];
  const nodes = state.parts.map((part, index) => {
    const node = tile(part, part.first);
    if (index === state.at) node.dataset.made = "yes";
    return node;
  });
  parts.replaceChildren(...nodes);
  let told = line(state, step);
  if (step === steps.length - 1) {
    const end = step ? t("merge.end", { n: state.parts.length }) : t("merge.none");
    told = `${told}. ${end}`;
    if (moved && step) did("replay");
  }
  moved = true;
  setText(find("merges-line"), told);
  for (const [index, node] of [...find("merges-rows").children].entries()) {
    node.toggleAttribute("data-chosen", index === step - 1);
  }
  return told;
});

function draw(document_) {
  steps = statesOf(document_.words);
  const rows = steps.slice(1).map(({ merge }, index) => {
    const parts = [merge.left, merge.right, merge.token].map((part) =>
      tableCell(el("code", "", visible(part.piece))),
    );
    return tableRow(el("th", "n", whole(index + 1)), [...parts, whole(merge.rank)]);
  });
  find("merges-rows").replaceChildren(...rows);
  moved = false;
  walk.begin(steps.length - 1);
}

function refresh() {
  const text = field.value;
  if (!text) return;
  ask(async (signal) => {
    draw(await post(`/api/v1/tokenizers/${choice.value}/merges`, { text }, { signal }));
  }, tellIn(find("merges-problem")));
}

settled(field, refresh);
choice.value = "r50k";
choice.addEventListener("change", refresh);
refresh();
