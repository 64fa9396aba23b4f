// The way of the prompt: five stages with their measured times; one at a time unfolds in place.

import { el, median, setText, sum } from "./dom.js";
import { ownTokens } from "./pieces.js";
import { phases, recomputes } from "./run.js";
import { choiceText, distribution, otherChoices, tokenInSight } from "./playground/choices.js";
import { laneOf } from "./store.js";
import { isPartial, probability } from "./text.js";
import {
  bandwidth,
  bytes,
  characters,
  flops,
  percent,
  rate,
  sentences,
  significant,
  t,
  time,
  visible,
  whole,
} from "./texts.js";

const FIRST_CHIPS = 80;
const ELEMENT_BYTES = { float32: 4, bfloat16: 2 };
const STREAM_BYTES = ELEMENT_BYTES.float32; // between layers, in every precision
const STAGES = ["tokens", "vectors", "layers", "choices", "token"];
const button = (stage) => document.getElementById(`stage-${stage}`);
const panel = (stage) => document.getElementById(`panel-${stage}`);

/** Measured ms of one part of the prefill's steps; null where the engine did not time it. */
function stageMs(run, ...names) {
  const steps = run.tokens.length ? phases(run).prefill : [];
  const values = steps.flatMap((step) => names.map((name) => step.stages_ms[name] ?? null));
  return values.length && !values.includes(null) ? sum(values) : null;
}

function times(run) {
  return {
    tokens: run.accepted?.tokenize_ms ?? null,
    vectors: stageMs(run, "embed"),
    layers: stageMs(run, "layers"),
    choices: stageMs(run, "logits", "sample"),
    token: run.tokens[0]?.detokenize_ms ?? null,
  };
}

function counts(run, facts) {
  const n = run.accepted ? whole(run.accepted.prompt_tokens) : "n";
  return {
    tokens: n,
    vectors: `${n} × ${facts ? whole(facts.hidden) : "—"}`,
    layers: facts ? whole(facts.layers) : "—",
    choices: facts ? whole(facts.vocabulary) : "—",
    token: run.tokens.length ? visible(run.tokens[0].piece) || "1" : "1",
  };
}

const line = (text, className = "fact") => el("p", className, text);

function tokenChips(run) {
  const list = el("ol", "pieces");
  const { prompt_pieces: pieces, prompt_token_ids: ids } = run.accepted;
  const add = (from, to) => {
    for (let i = from; i < Math.min(to, ids.length); i += 1) {
      const item = el("li", "piece-chip");
      item.append(el("span", "piece", visible(pieces[i]) || "▫"), el("span", "id", String(ids[i])));
      list.append(item);
    }
  };
  add(0, FIRST_CHIPS);
  const rest = ids.length - FIRST_CHIPS;
  if (rest <= 0) return [list];
  const more = el("button", "link", t("way.tokens.more", { n: rest }));
  more.type = "button";
  more.addEventListener("click", () => {
    add(FIRST_CHIPS, ids.length);
    more.remove();
  });
  return [list, more];
}

function costTable(run) {
  const { prefill, decode } = phases(run);
  const middle = [...decode].sort((a, b) => a.time - b.time)[decode.length >> 1];
  const columns = [
    [t("way.layers.prefill"), prefill],
    [t(recomputes(decode) ? "way.layers.recompute" : "way.layers.decode"), middle ? [middle] : []],
  ];
  const known = (steps) => steps.length > 0 && steps.every((step) => step.flops !== null);
  const add = (steps, name) => sum(steps.map((step) => step[name]));
  const layersMs = (steps) => {
    const values = steps.map((step) => step.stages_ms.layers ?? null);
    return values.length && !values.includes(null) ? time(sum(values)) : "—";
  };
  const [counted, measured] = [t("kind.counted"), t("kind.measured")];
  const both = t("kind.countedPerMeasured");
  const rows = [
    [t("way.layers.tokens"), "", (s) => (s.length ? whole(add(s, "tokens")) : "—")],
    [t("way.layers.flops"), counted, (s) => (known(s) ? flops(add(s, "flops")) : "—")],
    [t("way.layers.bytes"), counted, (s) => (known(s) ? bytes(add(s, "bytes")) : "—")],
    [
      t("way.layers.intensity"),
      counted,
      (s) => (known(s) ? significant(add(s, "flops") / add(s, "bytes")) : "—"),
    ],
    [t("way.layers.time"), measured, (s) => (s.length ? time(add(s, "time_ms")) : "—")],
    [t("way.layers.layersTime"), measured, layersMs],
    ["FLOP/s", both, (s) => (known(s) ? rate(add(s, "flops") / add(s, "time")) : "—")],
    ["byte/s", both, (s) => (known(s) ? bandwidth(add(s, "bytes") / add(s, "time")) : "—")],
  ];
  const table = el("table", "cost");
  const head = el("tr");
  head.append(el("td"));
  columns.forEach(([name], i) => {
    const cell = el("th", i ? (recomputes(decode) ? "again" : "cool") : "warm", name);
    cell.scope = "col";
    head.append(cell);
  });
  const body = el("tbody");
  for (const [name, kind, value] of rows) {
    const row = el("tr");
    const first = el("th", "", name);
    first.scope = "row";
    first.append(" ", el("span", "kind", kind));
    row.append(first, ...columns.map(([, steps]) => el("td", "", value(steps))));
    body.append(row);
  }
  const top = el("thead");
  top.append(head);
  table.append(top, body);
  const missing = run.steps.some((step) => step.flops === null);
  return missing ? [table, line(t("way.noCost"), "soft")] : [table];
}

const hex = (text) =>
  Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join(" ");

const DETAILS = {
  tokens(run) {
    if (!run.accepted) return null;
    const { prompt, messages } = run.request;
    const count = characters(prompt ?? messages[0].content);
    const all = run.accepted.prompt_tokens;
    const own = messages ? ownTokens(messages[0].content, run.accepted.prompt_pieces) : all;
    const text = t("way.tokens.details", {
      n: own,
      characters: t("way.tokens.characters", { n: count }),
      ratio: significant(count / own),
    });
    return [
      line(
        sentences([own && text, own < all && t("way.tokens.chat", { n: all - own, total: whole(all) })]),
        "soft",
      ),
      ...tokenChips(run),
    ];
  },
  vectors(run, facts) {
    if (!run.accepted || !facts) return null;
    const { dtype, prompt_tokens: n } = run.accepted;
    const size = ELEMENT_BYTES[laneOf(run)?.weights ?? dtype];
    const picked = size && t("way.vectors.table", {
      vocabulary: facts.vocabulary,
      tableBytes: bytes(facts.vocabulary * facts.hidden * size),
      dtype,
    });
    return [
      line(
        t("way.vectors.shape", {
          n,
          hidden: facts.hidden,
          size: STREAM_BYTES,
          bytes: bytes(n * facts.hidden * STREAM_BYTES),
        }),
      ),
      line(sentences([picked, dtype !== "float32" && t("way.vectors.stream")]), "soft"),
    ];
  },
  layers(run, facts) {
    if (!run.steps.length || !facts) return null;
    const makeup = t("way.layers.makeup", {
      layers: facts.layers,
      heads: facts.heads,
      kvHeads: facts.kv_heads,
      dim: facts.head_dim,
      ffn: facts.intermediate,
    });
    return [line(makeup, "soft"), ...costTable(run)];
  },
  choices(run, facts, selected) {
    const token = tokenInSight(run, selected);
    if (!token || !facts) return null;
    const p = probability(token);
    const logits = stageMs(run, "logits");
    const sample = stageMs(run, "sample");
    const spent = { logits: logits === null ? "—" : time(logits), sample: sample === null ? "—" : time(sample) };
    const table = distribution(token);
    return [
      line(choiceText(token, facts), "prose small"),
      table ?? line(t("way.choices.probability", { p: p === null ? "—" : percent(p) })),
      line(sentences([t("way.choices.time", spent), run.tokens.length > 1 && otherChoices()]), "soft"),
    ];
  },
  token(run) {
    const token = run.tokens.find((candidate) => candidate.text);
    if (!token) return null;
    const silent = run.tokens.filter(isPartial).length;
    return [
      line(
        t("way.token.bytes", {
          id: String(token.id),
          bytes: hex(token.text),
          text: visible(token.text),
        }),
      ),
      line(silent ? t("way.token.partial", { n: silent }) : t("way.token.whole"), "soft"),
    ];
  },
};

/** What a panel shows depends on these; it is rebuilt only when one of them changed. */
const version = (run, selected) =>
  [
    run.id,
    run.recorded ? "recorded" : "",
    Boolean(run.accepted),
    Math.min(run.tokens.length, 2),
    run.done ? "done" : "",
    run.steps[selected]?.token ?? "",
  ].join();

export function mountWay() {
  const way = document.querySelector(".way");
  let open = null;
  const built = {};

  function show(stage) {
    open = open === stage ? null : stage;
    way.classList.toggle("unfolded", open !== null);
    for (const name of STAGES) {
      button(name).setAttribute("aria-expanded", String(name === open));
      panel(name).hidden = name !== open;
    }
  }

  function paintPanel(stage, { run, facts, selected }) {
    // Only the choices depend on the token that the reader looks at.
    const key = run ? version(run, stage === "choices" ? selected : null) : "none";
    if (built[stage] === key) return;
    built[stage] = key;
    const place = panel(stage).querySelector("[data-facts]");
    const details = run && DETAILS[stage](run, facts, selected);
    place.replaceChildren(...(details || [line(t("way.wait"), "soft")]));
    if (details && run.tokens.length && times(run)[stage] === null) {
      place.append(line(t("way.missing"), "soft"));
    }
  }

  let current = { run: null, facts: null, selected: null };
  for (const stage of STAGES) {
    button(stage).addEventListener("click", () => {
      show(stage);
      if (open) paintPanel(open, current);
    });
  }
  way.addEventListener("keydown", (event) => {
    const at = STAGES.findIndex((name) => button(name) === event.target);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: STAGES.length - 1 }[event.key];
    if (event.key === "Escape" && open) {
      event.stopPropagation(); // it closes the stage and does not end the run
      const stage = open;
      show(stage);
      button(stage).focus();
    } else if (at >= 0 && to !== undefined) {
      event.preventDefault();
      if (STAGES[to]) button(STAGES[to]).focus();
    }
  });

  return ({ run, facts, selected }) => {
    current = { run, facts, selected };
    if (open) paintPanel(open, current);
    if (!run) return;
    const spent = times(run);
    const shown = counts(run, facts);
    const most = Math.max(...Object.values(spent).map((value) => value ?? 0));
    for (const stage of STAGES) {
      const place = button(stage);
      setText(place.querySelector("[data-count]"), shown[stage]);
      const value = spent[stage];
      setText(place.querySelector("[data-time]"), value === null ? "—" : time(value));
      place.querySelector("[data-kind]").hidden = value === null;
      const share = run.tokens.length && value ? `${(value / most) * 100}%` : "0";
      place.querySelector("[data-share]").style.width = share;
    }
  };
}
