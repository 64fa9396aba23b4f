// The page of a saved run: the same view as the first page, fed by the events that were stored.

import { get, Problem, remove } from "../api.js";
import { mountAnswers } from "../answers.js";
import { mountCache } from "../cache.js";
import { setText } from "../dom.js";
import { mountRoofline } from "../roofline.js";
import { changed, onPaint, store } from "../store.js";
import { mountStrip } from "../strip.js";
import { mountTable } from "../table.js";
import { mountText } from "../text.js";
import { t } from "../texts.js";
import { mountWay } from "../way.js";
import { runAgain } from "./again.js";
import { mountExports } from "./keep-run.js";
import { forgetToken, tokenOf } from "./keys.js";
import { mountReplay } from "./replay.js";
import { runOf } from "./saved.js";

const root = document.getElementById("run");
const { id, home } = root.dataset;
const told = document.querySelector("#keep [data-told]");
const tell = (error) => {
  if (!(error instanceof Problem)) throw error;
  setText(told, error.message);
};

function mountDelete() {
  const button = document.getElementById("delete");
  const token = tokenOf(id);
  button.hidden = !token;
  button.addEventListener("click", async () => {
    try {
      await remove(`/api/v1/runs/${id}`, { "x-delete-token": token });
      forgetToken(id);
      location.assign(home);
    } catch (error) {
      tell(error);
    }
  });
}

async function show() {
  const { run: saved } = await get(`/api/v1/runs/${id}`);
  const whole = runOf(saved);
  store.facts = saved.machine;
  store.run = whole;
  mountReplay().load(saved.events, () => saved);
  mountExports(() => whole);
  document.getElementById("again").addEventListener("click", () => runAgain(whole, id, home));
  changed();
}

onPaint(({ run }) => {
  root.dataset.state = run?.status ?? "idle";
});
for (const mount of [
  mountWay,
  mountAnswers,
  mountStrip,
  mountText,
  mountCache,
  mountRoofline,
  mountTable,
]) {
  onPaint(mount());
}
mountDelete();
setText(document.getElementById("announce"), t("run.loading"));
show().then(() => setText(document.getElementById("announce"), ""), tell);
