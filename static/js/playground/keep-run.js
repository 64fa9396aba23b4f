// Saving the run on the page under a link of its own, and exporting it.

import { post, Problem, remove, send } from "../api.js";
import { setText } from "../dom.js";
import { t } from "../texts.js";
import { save } from "./download.js";
import { forgetToken, keepToken } from "./keys.js";
import { savePicture } from "./picture.js";
import { canSave, documentOf, titleOf } from "./saved.js";

const FILES = {
  json: "first-token-run.json",
  "steps.csv": "first-token-steps.csv",
  "tokens.csv": "first-token-tokens.csv",
  trace: "first-token-run.trace.json",
};
const REFUSALS = { too_many_runs: "keep.many", store_full: "keep.full" };
const section = document.getElementById("keep");
const part = (name) => section.querySelector(`[data-${name}]`);

/** Calls `ask` and tells its problem, if it has one, in the section. */
async function trying(ask) {
  setText(part("told"), "");
  try {
    return await ask();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    setText(part("told"), REFUSALS[error.code] ? t(REFUSALS[error.code]) : error.message);
    return null;
  }
}

/** Export buttons: `run()` gives the run whose data they take. */
export function mountExports(run) {
  for (const button of section.querySelectorAll("[data-form]")) {
    button.addEventListener("click", () =>
      trying(async () => {
        const { form } = button.dataset;
        const answer = await send(`/api/v1/export?format=${form}`, documentOf(run()));
        save(await answer.blob(), FILES[form]);
      }),
    );
  }
  for (const button of section.querySelectorAll("[data-picture]")) {
    button.addEventListener("click", () => savePicture(button.dataset.picture));
  }
}

/** Mounts the section of the first page. `show(run)` offers a run that is over, null takes it away. */
export function mountKeep() {
  const form = part("save");
  let current = null;
  let receipt = null;
  mountExports(() => current);

  function showLink() {
    form.hidden = Boolean(receipt);
    part("saved").hidden = !receipt;
    if (!receipt) return;
    const link = new URL(receipt.path, location.href).href;
    part("link").value = link;
    part("open").href = link;
    const days = new Intl.DateTimeFormat(document.documentElement.lang, { dateStyle: "medium" });
    setText(part("until"), t("keep.until", { date: days.format(new Date(receipt.expires)) }));
  }

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const saved = current;
    const fields = new FormData(form);
    const title = fields.get("title").trim() || titleOf(saved.request);
    const by = fields.get("by").trim();
    part("go").disabled = true;
    const answer = await trying(() => post("/api/v1/runs", documentOf(saved, { title, by })));
    part("go").disabled = false;
    if (!answer || current !== saved) return;
    receipt = answer;
    keepToken(answer.id, answer.delete_token);
    showLink();
    setText(part("told"), t("keep.saved"));
    part("link").focus();
    part("link").select();
  });
  part("copy").addEventListener("click", async () => {
    part("link").select();
    try {
      await navigator.clipboard.writeText(part("link").value);
      setText(part("told"), t("keep.copied"));
    } catch {
      setText(part("told"), t("keep.copy")); // no permission: it is selected, ready to be copied
    }
  });
  part("delete").addEventListener("click", async () => {
    const { id, delete_token: token } = receipt;
    const headers = { "x-delete-token": token };
    const gone = await trying(async () => {
      await remove(`/api/v1/runs/${id}`, headers);
      return true;
    });
    if (!gone) return;
    forgetToken(id);
    receipt = null;
    showLink();
    setText(part("told"), t("keep.deleted"));
    part("go").focus();
  });

  return {
    show(run) {
      current = canSave(run) ? run : null;
      receipt = null;
      section.hidden = !current;
      setText(part("told"), "");
      if (!current) return;
      form.elements.title.placeholder = titleOf(run.request);
      form.elements.title.value = "";
      showLink();
    },
  };
}
