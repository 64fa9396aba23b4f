// Keeps what was typed when the page is left by a link or loaded again, as long as the tab lives.

import { KEY } from "./playground/again.js";

const form = document.getElementById("ask");

function read() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY)) ?? {};
  } catch {
    return {}; // storage can be forbidden; then nothing is kept
  }
}

function write(kept) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify(kept));
  } catch {
    // see read()
  }
}

function choose(name, value) {
  const radios = [...form.querySelectorAll(`input[type=radio][name="${name}"]`)];
  const radio = radios.find((one) => one.value === value && !one.disabled);
  if (!radio || radio.checked) return;
  radio.checked = true;
  radio.dispatchEvent(new Event("change", { bubbles: true }));
}

function fill(name, value) {
  const field = form.elements.namedItem(name);
  if (!(field instanceof HTMLElement) || field.type === "radio") return;
  field.value = value;
  field.dispatchEvent(new Event("input", { bubbles: true }));
}

const isChanged = (field) =>
  field.type === "select-one" ? field.selectedIndex > 0 : field.value !== field.defaultValue;

/**
 * Fills the form with what it held when this page was left, and keeps it the next time.
 * `running()` tells whether a run goes on. The result tells whether one did when the page was left,
 * and the id of the saved run whose settings these are, if they are.
 */
export function keepForm(running) {
  const { fields = {}, left = false, again = null } = read();
  for (const [name, value] of Object.entries(fields)) fill(name, value);
  choose("mode", fields.mode);
  if ([...form.querySelectorAll("#advanced input, #advanced select")].some(isChanged)) {
    document.getElementById("more").click();
  }
  // Choosing a precision loads its roof, for which htmx must have seen the page. While the engine
  // starts, its precisions are not known yet: they come later, in a new fragment.
  let dtype = fields.dtype;
  const chooseDtype = () => choose("dtype", dtype);
  document.addEventListener("DOMContentLoaded", chooseDtype);
  document.body.addEventListener("htmx:afterSettle", ({ target }) => {
    if (target.id === "dtype") chooseDtype();
  });
  form.addEventListener("change", ({ target }) => {
    if (target.name === "dtype") dtype = target.value;
  });

  addEventListener("pagehide", () => {
    const now = Object.fromEntries(new FormData(form));
    write({ fields: { ...now, dtype: dtype ?? now.dtype }, left: running() });
  });
  write({ fields, left: false });
  return { left, again };
}
