// The answer: every token an element of its own, its text only ever set as text.

import { el, setText } from "./dom.js";
import { Clusters } from "./clusters.js";
import { isOver } from "./run.js";
import { rove } from "./roving.js";
import { select, store } from "./store.js";
import { characters, percent, sentences, t, time, visible } from "./texts.js";

const section = document.getElementById("text");
const part = (name) => section.querySelector(`[data-${name}]`);

/** A token without text whose piece holds bytes: a character that is not whole yet. */
export const isPartial = (token) => !token.text && /<[0-9A-F]{2}>/.test(token.piece);

export const probability = (token) => (token.logprob === null ? null : Math.exp(token.logprob));

function level(p) {
  if (p === null) return "";
  if (p >= 0.9) return "p3";
  if (p >= 0.5) return "p2";
  return p >= 0.1 ? "p1" : "p0";
}

function chip(token, clusters) {
  const p = probability(token);
  const node = el("span", `token ${level(p)}`);
  const joined = clusters.put(node, token.text);
  if (joined) node.dataset.joined = "yes";
  if (joined.length === token.text.length) node.classList.add("silent");
  else if (token.text.includes("\n") && !token.text.trim()) node.classList.add("blank");
  node.setAttribute("role", "option");
  node.setAttribute("aria-selected", "false");
  node.tabIndex = -1;
  node.dataset.index = token.index;
  const name = visible(token.text || token.piece);
  node.setAttribute(
    "aria-label",
    p === null ? name : t("token.name", { piece: name, p: percent(p) }),
  );
  return node;
}

function facts(run, token) {
  const p = probability(token);
  const step = run.steps[token.step];
  const first = token.itl_ms === null;
  return [
    [t("token.card.id"), String(token.id)],
    [t("token.card.probability"), p === null ? "—" : percent(p)],
    [t(first ? "token.card.ttft" : "token.card.itl"), time(first ? token.time_ms : token.itl_ms)],
    [t("token.card.step"), step ? String(token.step + 1) : "—"],
    [t("token.card.batch"), step ? String(step.batch) : "—"],
  ];
}

function fillCard(card, chosen, run, token) {
  const title = el("p", "card-title");
  title.append(el("b", "piece", visible(token.piece)));
  title.append(el("span", "soft", ` ${t("token.card.number", { n: token.index + 1 })}`));
  const list = el("dl");
  for (const [name, value] of facts(run, token)) list.append(el("dt", "", name), el("dd", "", value));
  card.replaceChildren(title);
  if (!token.text) {
    card.append(el("p", "soft", t(isPartial(token) ? "token.card.partial" : "token.card.held")));
  } else if (chosen.dataset.joined) {
    card.append(el("p", "soft", t("token.card.joined")));
  }
  card.append(list);
}

/** Under the token, inside the section, whatever the width of the window. */
function putCard(card, chosen) {
  const [box] = chosen.getClientRects();
  if (!box) return;
  const frame = section.getBoundingClientRect();
  const room = frame.width - card.offsetWidth;
  card.style.left = `${Math.max(0, Math.min(box.left - frame.left, room))}px`;
  card.style.top = `${box.bottom - frame.top + 6}px`;
}

export function mountText() {
  const place = part("tokens");
  const card = part("card");
  let shown = null;
  let drawn = 0;
  let marked = null;
  let clusters = null;

  const roving = rove(place, ".token", (chosen) => {
    const token = chosen && store.run?.tokens[Number(chosen.dataset.index)];
    select(token ? token.step : null);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") select(null);
  });

  function mark(run, selected) {
    const index = run.steps[selected]?.token;
    const chosen = index === undefined ? null : place.children[index];
    if (chosen !== marked) {
      marked?.setAttribute("aria-selected", "false");
      chosen?.setAttribute("aria-selected", "true");
      marked = chosen;
    }
    card.hidden = !chosen;
    if (!chosen) return;
    fillCard(card, chosen, run, run.tokens[index]);
    putCard(card, chosen);
  }

  function finish(run) {
    const { text, tail } = run.done;
    if (tail && !place.querySelector(".tail")) place.append(el("span", "tail", tail));
    place.dataset.text = text;
    place.dataset.complete = "yes";
    const same = place.textContent === text;
    setText(
      part("check"),
      sentences([
        t(same ? "token.check.same" : "token.check.different", { n: characters(text) }),
        tail.endsWith("\ufffd") && t("token.check.cut"),
      ]),
    );
  }

  return ({ run, selected }) => {
    if (!run) return;
    if (shown !== run) {
      shown = run;
      drawn = 0;
      marked = null;
      clusters = new Clusters();
      place.replaceChildren();
      delete place.dataset.complete;
      setText(part("check"), "");
    }
    part("empty").hidden = run.tokens.length > 0;
    place.hidden = run.tokens.length === 0;
    part("legend").hidden = run.tokens.length === 0;
    const fresh = run.tokens.slice(drawn).map((token) => chip(token, clusters));
    if (fresh.length) {
      place.append(...fresh);
      drawn = run.tokens.length;
      roving.refresh();
    }
    place.classList.toggle("writing", !isOver(run));
    if (run.done && place.dataset.complete !== "yes") finish(run);
    mark(run, selected);
  };
}
