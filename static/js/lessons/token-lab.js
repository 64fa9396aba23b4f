// The guess, the lab, and the ids that the article gives.

import { post } from "../api.js";
import { el, setText, tableCell, tableRow } from "../dom.js";
import { rove } from "../roving.js";
import { significant, t, time, visible, whole } from "../texts.js";
import { latest, tellIn } from "./latest.js";
import { did, onGuess, tellTruth } from "./lesson.js";
import { isReady, onReady } from "./ready.js";
import { bar, settled, spaced, tile } from "./token-tiles.js";

const find = (id) => document.getElementById(id);
const MOST_TILES = 400;

// ── the guess ──────────────────────────────────────────────────────────────────────────────────

const CUTS = ["unhappiness", "un happiness", "un happi ness", "un h appiness"];
const cut = find("cut");

onGuess(() => {
  cut.disabled = false;
});

cut.addEventListener("click", async () => {
  try {
    const { tokens } = await post("/api/v1/tokenizers/r50k/encode", { text: "unhappiness" });
    const pieces = tokens.map((token) => token.piece);
    tellTruth(t("guess.truth", { pieces: pieces.join(" · ") }), CUTS.indexOf(pieces.join(" ")));
    tellIn(find("cut-problem"))(null);
  } catch (problem) {
    tellIn(find("cut-problem"))(problem);
  }
});

// ── the lab ────────────────────────────────────────────────────────────────────────────────────

const field = find("lab-text");
const choice = find("lab-tokenizer");
const chat = find("lab-chat");
const tiles = find("lab-pieces");
const inspect = find("lab-inspect");
const ask = latest();
const compare = latest();
let shown = [];
let typed = false;

/** The question for what is chosen: the model that runs here, or a stored vocabulary. */
function question() {
  const text = field.value;
  if (choice.value) return [`/api/v1/tokenizers/${choice.value}/encode`, { text }];
  if (!chat.checked) return ["/api/v1/tokenize", { text }];
  return ["/api/v1/tokenize", { messages: [{ role: "user", content: text }] }];
}

function draw(answer) {
  const { tokens } = answer;
  shown = tokens;
  const nodes = tokens.slice(0, MOST_TILES).map((token, index) => {
    const node = tile(token, index, "button");
    node.type = "button";
    node.tabIndex = -1;
    node.dataset.index = index;
    const name = t("lab.piece", { piece: visible(token.piece), id: String(token.id) });
    node.setAttribute("aria-label", token.special ? `${name}, ${t("lab.special")}` : name);
    return node;
  });
  tiles.replaceChildren(...nodes);
  roving.refresh();
  look(nodes[0]);
  const { characters, utf8_bytes: bytes, milliseconds } = answer;
  const rate = significant(characters / tokens.length);
  const count = { n: tokens.length, characters, bytes, rate };
  const notes = [
    t("lab.count", count),
    milliseconds === undefined
      ? t("lab.computed")
      : t("lab.measured", { time: time(milliseconds) }),
    tokens.length > MOST_TILES && t("lab.more", { n: tokens.length - MOST_TILES }),
    answer.unspellable?.length && t("lab.left_out"),
  ];
  setText(find("lab-count"), notes.filter(Boolean).join(" · "));
}

/** Everything about one token, below the tiles. */
function look(node) {
  if (!node) return;
  const token = shown[node.dataset.index];
  for (const other of tiles.children) other.toggleAttribute("data-chosen", other === node);
  const part = /<[89A-F][0-9A-F]>/.test(token.piece);
  const facts = [
    ["", visible(token.piece)],
    [t("lab.id"), String(token.id)],
    [t("lab.bytes"), spaced(token.bytes)],
  ];
  inspect.replaceChildren(
    ...facts.map(([name, value]) => {
      const pair = el("div");
      pair.append(el("dt", name ? "" : "hear", name || t("lab.id")), el("dd", "", value));
      return pair;
    }),
  );
  if (part || token.special) {
    const note = el("div");
    note.append(el("dd", "soft", t(token.special ? "lab.special" : "lab.part")));
    inspect.append(note);
  }
}

const roving = rove(tiles, ".tile", (node) => {
  look(node);
  if (node && typed) did("own-text");
});

function drawAll({ counts }) {
  const most = Math.max(...Object.values(counts));
  const rows = Object.entries(counts).map(([name, count]) => {
    const option = choice.querySelector(`option[value="${name}"]`);
    return tableRow(option.textContent, [whole(count), tableCell(bar(count / most, "bar-fill"))]);
  });
  find("lab-all").replaceChildren(...rows);
}

function refresh() {
  chat.disabled = choice.value !== "";
  if (!field.value) {
    tiles.replaceChildren();
    find("lab-all").replaceChildren();
    inspect.replaceChildren();
    setText(find("lab-count"), t("lab.empty"));
    return;
  }
  const [path, body] = question();
  ask(async (signal) => draw(await post(path, body, { signal })), tellIn(find("lab-problem")));
  const text = field.value;
  compare(
    async (signal) => drawAll(await post("/api/v1/tokenizers/compare", { text }, { signal })),
    tellIn(find("lab-problem")),
  );
}

settled(field, () => {
  typed = true;
  refresh();
});
choice.addEventListener("change", refresh);
chat.addEventListener("change", refresh);
// While the model loads, the stored vocabularies answer.
choice.value = isReady() ? "" : "smollm2";
onReady((ready) => {
  choice.options[0].disabled = !ready;
  if (ready === (choice.value === "") || typed) return;
  choice.value = ready ? "" : "smollm2";
  refresh();
});
refresh();

// ── the ids that the article gives ─────────────────────────────────────────────────────────────

const SENTENCE = "How does inference work?";
const ARTICLE = [2437, 1374, 32278, 670, 30];

/** What GPT-2's own vocabulary gives, beside what the article says. */
async function checkIds() {
  const { tokens } = await post("/api/v1/tokenizers/r50k/encode", { text: SENTENCE });
  const { tokens: how } = await post("/api/v1/tokenizers/r50k/encode", { text: " How" });
  const known = new Map(how.map((token) => [token.id, token.piece]));
  const rows = tokens.map((token, index) => {
    const same = token.id === ARTICLE[index];
    const piece = visible(known.get(ARTICLE[index]) ?? "—");
    const told = same ? t("ids.same") : t("ids.different", { id: String(ARTICLE[index]), piece });
    const ids = [String(ARTICLE[index]), String(token.id)];
    const line = tableRow(visible(token.piece), [...ids, tableCell(told)]);
    line.dataset.same = same ? "yes" : "no";
    return line;
  });
  find("ids-rows").replaceChildren(...rows);
  const n = tokens.filter((token, index) => token.id !== ARTICLE[index]).length;
  setText(find("ids-sum"), t("ids.sum", { n, total: tokens.length }));
}

checkIds().catch(tellIn(find("ids-problem")));
