// The KV cache of this run: a cell a block, filled token by token.

import { el, setText } from "./dom.js";
import { cached, isOver } from "./run.js";
import { rove } from "./roving.js";
import { laneOf, store } from "./store.js";
import { bytes, sentences, t } from "./texts.js";

const MOST_CELLS = 256;
const section = document.getElementById("cache");
const part = (name) => section.querySelector(`[data-${name}]`);

/** Tokens of the prompt and of the answer in block `index`. */
function filling(index, size, { prompt, total }) {
  const from = index * size;
  const inside = (limit) => Math.min(size, Math.max(0, limit - from));
  return { prompt: inside(prompt), answer: inside(total) - inside(prompt) };
}

function describe(index, size, cache) {
  const { prompt, answer } = filling(index, size, cache);
  if (!prompt && !answer) return t("cache.cell.free", { n: index + 1 });
  const from = index * size + 1;
  return t("cache.cell", { n: index + 1, from, to: from + prompt + answer - 1, prompt, answer });
}

export function mountCache() {
  const cells = part("cells");
  let shown = null;
  let looked = null;
  const roving = rove(cells, ".cell", (cell) => {
    looked = cell;
    readout();
  });

  function readout() {
    const { run } = store;
    part("readout").hidden = !looked;
    if (!looked || !run) return;
    const size = run.steps.at(-1)?.kv_block_tokens;
    setText(part("readout"), describe(Number(looked.dataset.index), size, cached(run)));
  }

  function fill(size, cache, wanted) {
    const count = Math.min(wanted, MOST_CELLS);
    while (cells.childElementCount < count) {
      const cell = el("span", "cell");
      cell.setAttribute("role", "option");
      cell.setAttribute("aria-selected", "false");
      cell.tabIndex = -1;
      cell.dataset.index = cells.childElementCount;
      cells.append(cell);
    }
    while (cells.childElementCount > count) cells.lastChild.remove();
    for (const cell of cells.children) {
      const { prompt, answer } = filling(Number(cell.dataset.index), size, cache);
      const state = `${prompt} ${answer}`;
      if (cell.dataset.state === state) continue;
      cell.dataset.state = state;
      cell.style.setProperty("--warm", `${(prompt / size) * 100}%`);
      cell.style.setProperty("--full", `${((prompt + answer) / size) * 100}%`);
      cell.setAttribute("aria-label", describe(Number(cell.dataset.index), size, cache));
    }
    cells.classList.toggle("many", count > 40);
    roving.refresh();
  }

  return ({ run }) => {
    const last = run?.steps.at(-1);
    if (shown !== run) {
      shown = run;
      cells.replaceChildren();
      setText(part("count"), "");
    }
    const lane = run ? laneOf(run) : null;
    const off = lane?.kv_cache === "off";
    cells.hidden = off || !last?.kv_block_tokens;
    if (off) setText(part("sentence"), t("cache.off"));
    if (cells.hidden) {
      part("readout").hidden = true;
      return;
    }
    const cache = cached(run);
    const size = last.kv_block_tokens;
    const most = Math.ceil((run.accepted.prompt_tokens + run.accepted.max_tokens) / size);
    fill(size, cache, isOver(run) ? last.own_kv_blocks : most);
    setText(
      part("count"),
      [
        t("cache.count", { n: cache.total }),
        bytes(last.kv_bytes),
        t("cache.blocks", { n: last.own_kv_blocks, size }),
      ].join(" · "),
    );
    const parts = [
      t("cache.sentence", {
        n: cache.prompt,
        answer: cache.answer,
        perToken: lane ? bytes(lane.kv_bytes_per_token) : "—",
        bytes: bytes(last.kv_bytes),
      }),
      isOver(run)
        ? t(run.error?.code === "engine_restarted" ? "cache.gone" : "cache.freed")
        : t("cache.pool", { used: last.kv_blocks_used, total: last.kv_blocks_total }),
    ];
    if (most > MOST_CELLS) parts.push(t("cache.more", { n: most - MOST_CELLS }));
    setText(part("sentence"), sentences(parts));
    readout();
  };
}
