// The model as it is beside the model without a part: what each says next, and how each goes on.

import { el } from "../dom.js";
import { percent, significant, t, visible } from "../texts.js";
import { written } from "./tok.js";

function side(title, { top, text }) {
  const box = el("div", "comparison-side");
  box.append(el("h3", "", title));
  const list = el("ol", "next-tokens");
  for (const { piece, logprob } of top) {
    const item = el("li");
    const share = Math.exp(logprob);
    const bar = el("span", "share-bar");
    bar.style.setProperty("--w", share);
    item.append(el("span", "piece", visible(piece)), bar, el("span", "n", percent(share)));
    list.append(item);
  }
  const goes = el("p", "goes-on");
  goes.append(el("span", "soft", t("compare.goesOn")), " ", el("q", "", written(text)));
  box.append(list, goes);
  return box;
}

/**
 * Shows an answer of the probe "comparison" in `node`. `name` says in words what was taken out.
 * Gives back whether both rank the same token first.
 */
export function showComparison(node, answer, name) {
  const kl = answer.kl.reduce((total, value) => total + value, 0) / answer.kl.length;
  const columns = el("div", "comparison");
  columns.append(side(t("compare.asItIs"), answer.as_it_is), side(name, answer.ablated));
  const same = answer.as_it_is.top[0].id === answer.ablated.top[0].id;
  const facts = t("compare.facts", { kl: significant(kl), same: percent(answer.same_top) });
  node.replaceChildren(columns, el("p", "small", facts));
  return same;
}
