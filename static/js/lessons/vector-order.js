// The model beside itself without rotations: the same prompt, the same weights.

import { post, Problem } from "../api.js";
import { setText, sum, tableCell, tableRow } from "../dom.js";
import { percent, significant, t, visible } from "../texts.js";
import { did } from "./lesson.js";
import { currentTokens, idsOf } from "./vector-tokens.js";

const at = (id) => document.getElementById(id);
const button = at("order-run");

const line = (name, texts) => tableRow(name, texts.map((text) => tableCell(text)));

const likeliest = ({ top }) =>
  top.map(({ piece, logprob }) => `${visible(piece)} ${percent(Math.exp(logprob))}`).join(" · ");

function show({ as_it_is: plain, ablated, kl, same_top: same }) {
  at("order-body").replaceChildren(
    line(t("order.next"), [likeliest(plain), likeliest(ablated)]),
    line(t("order.goes"), [plain.text, ablated.text]),
  );
  at("order-table").hidden = false;
  const mean = sum(kl) / kl.length;
  setText(at("order-found"), t("order.kl", { kl: significant(mean), share: percent(same) }));
}

async function run() {
  const tokens = currentTokens();
  if (!tokens || !at("rows-prompt").value.trim()) {
    return setText(at("order-problem"), t("lesson.empty"));
  }
  button.disabled = true;
  setText(at("order-problem"), "");
  setText(at("order-status"), t("lesson.running"));
  try {
    const question = { token_ids: idsOf(tokens), ablations: ["no-rotation"], k: 3, max_tokens: 12 };
    show(await post("/api/v1/probes/comparison", question));
    did("without");
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    setText(at("order-problem"), error.message);
  } finally {
    setText(at("order-status"), "");
    button.disabled = false;
  }
}

button.addEventListener("click", run);
