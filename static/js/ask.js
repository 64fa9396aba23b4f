// The form: reads the knobs, keeps slider and number together, picks prompts.

import { onPaint } from "./store.js";

const form = document.getElementById("ask");
const CANDIDATES = 5; // likeliest tokens to be told with each token
const prompt = document.getElementById("prompt");

function pair(name) {
  const number = document.getElementById(name);
  const slider = document.getElementById(`${name}-slider`);
  slider.addEventListener("input", () => {
    number.value = slider.value;
    number.setCustomValidity("");
  });
  number.addEventListener("input", () => {
    slider.value = number.value;
  });
}

const number = (name) => document.getElementById(name).valueAsNumber;

/** Radio buttons carry their value; everything else is a number, or a text that may be empty. */
export function readRequest() {
  const data = new FormData(form);
  const text = prompt.value.replaceAll("\r\n", "\n");
  const stop = data.get("stop_text");
  const seed = number("seed");
  return {
    type: "generate",
    request_id: requestId(),
    ...(data.get("mode") === "chat"
      ? { messages: [{ role: "user", content: text }] }
      : { prompt: text }),
    max_tokens: number("max_tokens"),
    temperature: number("temperature"),
    top_k: number("top_k"),
    top_p: number("top_p"),
    min_p: number("min_p"),
    ...(Number.isNaN(seed) ? {} : { seed }),
    ...(stop ? { stop: [stop] } : {}),
    ...lane(data),
    ...speculation(data.get("speculation")),
    repetition_penalty: number("repetition_penalty"),
    top_logprobs: CANDIDATES,
  };
}

/** Weights and KV cache. The precision beside the form counts unless weights are chosen here. */
function lane(data) {
  const weights = data.get("weights");
  return {
    ...(weights ? { weights } : { dtype: data.get("dtype") ?? "auto" }),
    kv_cache: data.get("kv_cache"),
    prefix_cache: data.get("prefix_cache") === "on",
  };
}

const speculation = (method) => (method ? { speculation: { method } } : {});

function requestId() {
  const random = crypto.getRandomValues(new Uint32Array(3));
  return `page-${Array.from(random, (part) => part.toString(36)).join("")}`;
}

/** Checks the form as the browser does, says what is wrong there, and tells whether it is fine. */
export function checkForm() {
  for (const field of form.querySelectorAll("input")) {
    field.setAttribute("aria-invalid", String(!field.validity.valid));
  }
  const wrong = form.querySelector("input:invalid");
  if (wrong?.closest("[hidden]")) showAdvanced(true);
  return form.reportValidity();
}

/** An answer leaves room for at least one token of the prompt. */
function limitLength({ facts }) {
  const number = document.getElementById("max_tokens");
  if (!facts || number.dataset.context === String(facts.max_context)) return;
  number.dataset.context = facts.max_context;
  number.max = Math.min(Number(number.max), facts.max_context - 1);
  const slider = document.getElementById("max_tokens-slider");
  slider.max = Math.min(Number(slider.max), Number(number.max));
}

/** Marks the field that the server refused, by its name or its JSON pointer. */
export function blame(pointer) {
  const name = pointer.split("/").find(Boolean) ?? "";
  const field = form.elements.namedItem({ messages: "prompt", stop: "stop_text" }[name] ?? name);
  if (!(field instanceof HTMLElement)) return;
  if (field.closest("[hidden]")) showAdvanced(true);
  field.setAttribute("aria-invalid", "true");
  field.focus();
}

function showAdvanced(open) {
  document.getElementById("advanced").hidden = !open;
  document.getElementById("more").setAttribute("aria-expanded", String(open));
}

/** Offers chat only where the model has a template for it. */
export function offerChat(possible) {
  const [chat, text] = form.elements.namedItem("mode");
  chat.disabled = !possible;
  if (!possible) text.checked = true;
}

/** Wires the form. `on` has `run()` and `stop()`. */
export function mountAsk(on) {
  pair("temperature");
  pair("max_tokens");
  onPaint(limitLength);
  const more = document.getElementById("more");
  more.addEventListener("click", () => showAdvanced(more.getAttribute("aria-expanded") !== "true"));
  for (const pick of form.querySelectorAll(".pick")) {
    pick.addEventListener("click", () => {
      prompt.value = pick.dataset.prompt;
      const [chat, text] = form.elements.namedItem("mode");
      (pick.dataset.chat === "yes" && !chat.disabled ? chat : text).checked = true;
      fit();
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    on.run();
  });
  document.getElementById("stop").addEventListener("click", on.stop);
  document.getElementById("again").addEventListener("click", on.run);
  document.addEventListener("keydown", (event) => {
    if (event.isComposing) return;
    if (event.key === "Escape") on.stop();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      on.run();
    }
  });
  prompt.addEventListener("input", fit);
  fit();
}

/** Lets the text area grow with its text, up to a limit set in the style sheet. */
function fit() {
  if (CSS.supports("field-sizing", "content")) return;
  prompt.style.height = "auto";
  prompt.style.height = `${prompt.scrollHeight + 2}px`;
}
