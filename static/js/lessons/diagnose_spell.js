// Tokens above, characters below: where a token ends inside a character, its text has to wait.

import { post } from "../api.js";
import { el, setText } from "../dom.js";
import { t, visible } from "../texts.js";
import { did } from "./lesson.js";
import { isReady } from "./ready.js";

const form = document.getElementById("spell-form");
const field = document.getElementById("spell-text");
const next = document.getElementById("spell-next");
const list = document.getElementById("spelling");
const screen = document.getElementById("screen");
const words = document.getElementById("spell-words");
let tokens = [];
let tail = "";
let at = 0;

const hex = (bytes) => bytes.toUpperCase().replace(/(..)(?=.)/g, "$1 ");

/** What a token shows: signs without a width of their own, such as joiners, get a mark. */
const shown = (text) => (text.replace(/[\u200b-\u200d\ufe0e\ufe0f]/g, "") ? visible(text) : "▫");

/** Whether the token's text was held back until a later one. */
const waits = (token) => token.text === "";

function chip(token, index) {
  const item = el("li", "spell-token");
  item.dataset.index = index;
  item.append(
    el("span", "spell-bytes", hex(token.bytes)),
    el("span", "spell-id", String(token.id)),
    el("span", waits(token) ? "spell-out waits" : "spell-out", waits(token) ? "…" : shown(token.text)),
  );
  return item;
}

function paint() {
  [...list.children].forEach((item, index) => {
    item.dataset.state = index < at ? "came" : "comes";
    if (index === at - 1) item.setAttribute("aria-current", "step");
    else item.removeAttribute("aria-current");
  });
  const text = tokens.slice(0, at).map((token) => token.text).join("");
  screen.textContent = at === tokens.length ? text + tail : text;
  next.disabled = at >= tokens.length;
  if (at === 0) return setText(words, t("spell.begin", { n: tokens.length }));
  const token = tokens[at - 1];
  const values = { at, n: tokens.length, id: String(token.id), bytes: hex(token.bytes), text: shown(token.text) };
  setText(words, t(waits(token) ? "spell.waits" : "spell.shows", values));
  list.children[at - 1].scrollIntoView({ block: "nearest", inline: "nearest" });
}

function step() {
  at = Math.min(tokens.length, at + 1);
  paint();
  // The button goes once all tokens came: the next thing to press is the other one.
  if (next.disabled) form.querySelector('[type="submit"]').focus();
  if (at === tokens.length && tokens.some(waits)) did("spell");
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!field.value) return setText(words, t("error.empty"));
  if (!isReady()) return setText(words, t("api.notReady"));
  try {
    ({ tokens, tail } = await post("/api/v1/tokenize", { text: field.value }));
  } catch (problem) {
    return setText(words, problem.message);
  }
  at = 0;
  list.replaceChildren(...tokens.map(chip));
  paint();
  next.focus();
});

next.addEventListener("click", step);
form.addEventListener("keydown", (event) => {
  if (event.target === next && event.key === "ArrowRight") step();
  if (event.target === next && event.key === "ArrowLeft") {
    at = Math.max(0, at - 1);
    paint();
  }
});
