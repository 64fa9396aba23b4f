// What one token was chosen from: the likeliest candidates with their probabilities, as the engine
// told them with the token.

import { el, sum } from "../dom.js";
import { probability } from "../text.js";
import { percent, t, visible, whole } from "../texts.js";

/** The token that the reader looks at, else the first. */
export function tokenInSight(run, selected) {
  const index = run.steps[selected]?.token ?? 0;
  return run.tokens[index] ?? null;
}

function row(name, p, chosen) {
  const line = el("tr", chosen ? "chosen" : "");
  const head = el("th", "piece", name);
  head.scope = "row";
  const bar = el("td", "bar-cell");
  const fill = el("span", "bar-fill");
  fill.style.setProperty("--share", `${(p ?? 0) * 100}%`);
  bar.append(fill);
  const value = el("td", "", p === null ? "—" : percent(p));
  if (chosen) value.append(" ", el("b", "", t("choices.chosen")));
  line.append(head, bar, value);
  return line;
}

/** The distribution that `token` was drawn from, as a table with bars; null where it is not known. */
export function distribution(token) {
  if (!token.top_logprobs?.length) return null;
  const candidates = token.top_logprobs.map(({ id, piece, logprob }) => ({
    id,
    piece,
    p: logprob === null ? 0 : Math.exp(logprob),
  }));
  if (!candidates.some(({ id }) => id === token.id)) {
    candidates.push({ id: token.id, piece: token.piece, p: probability(token) });
  }
  const known = sum(candidates.map(({ p }) => p ?? 0));
  const table = el("table", "choices");
  const body = el("tbody");
  for (const { id, piece, p } of candidates) body.append(row(visible(piece) || "▫", p, id === token.id));
  body.append(row(t("choices.rest"), Math.max(0, 1 - known), false));
  table.append(el("caption", "soft", t("choices.caption")), body);
  return table;
}

/** The sentence about `token`: which choice this was. */
export const choiceText = (token, { vocabulary }) =>
  t("choices.which", {
    n: token.index + 1,
    piece: visible(token.piece),
    id: String(token.id),
    vocabulary: whole(vocabulary),
  });

/** How to see another choice. */
export const otherChoices = () => t("choices.other");
