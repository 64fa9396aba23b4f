// Questions to the server's REST interface, and its packed arrays as numbers.

import { has, t } from "./texts.js";

const root = document.documentElement.dataset.root ?? "";

/**
 * An answer that did not come. `message` is a sentence in the reader's language, to be shown as
 * text. `status` is the HTTP status, 0 where the server was not reached; `code` is the server's
 * name for the kind of problem, and `pointer` the place in the body that is at fault, or "".
 */
export class Problem extends Error {
  constructor(message, status = 0, { code = "offline", errors = [] } = {}) {
    super(message);
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.pointer = errors[0]?.pointer ?? "";
  }
}

function sentence(status, { code, detail, errors, reason, values }) {
  if (has(`refusal.${reason}`)) return t("error.because", { message: t(`refusal.${reason}`, values) });
  if (code === "engine_unavailable" || code === "engine_restarted") return t("api.notReady");
  if (status === 429 || status === 503) return t("api.busy");
  const message = errors?.[0]?.detail ?? detail;
  return status < 500 && message ? t("error.other", { message }) : t("api.failed");
}

/** The document, or {} where something else than the app answered (a proxy, say). */
async function documentOf(response) {
  try {
    return (await response.json()) ?? {};
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return {};
  }
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(root + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(t("api.offline"));
  }
  if (!response.ok) {
    const problem = await documentOf(response);
    throw new Problem(sentence(response.status, problem), response.status, problem);
  }
  return response;
}

/**
 * The JSON that `path` ("/api/v1/…") answers to `body`. Throws a `Problem`; where `signal` ends
 * the question, an AbortError, which is nothing to show.
 */
export const post = async (path, body, options) => (await send(path, body, options)).json();

/** What `path` answers to `body`, in whatever form; `text()` or `blob()` read it. Throws as `post`. */
export const send = (path, body, { signal } = {}) =>
  ask(path, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json" },
    body: JSON.stringify(body),
    signal,
  });

/** The JSON at `path`. Throws as `post` does. */
export const get = async (path, { signal } = {}) =>
  (await ask(path, { headers: { accept: "application/json" }, signal })).json();

/** Deletes what is at `path`, with `headers` that allow it. Throws as `post` does. */
export const remove = async (path, headers) => {
  await ask(path, { method: "DELETE", headers });
};

/** The number that 16 bits stand for (IEEE 754 binary16). */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** A packed array {shape, dtype, data} as a Float32Array, row by row, with `shape` on it. */
export function unpack({ shape, dtype, data }) {
  const text = atob(data);
  const stored = new DataView(Uint8Array.from(text, (letter) => letter.charCodeAt(0)).buffer);
  const size = dtype === "float32" ? 4 : 2;
  const values = new Float32Array(stored.byteLength / size);
  for (let i = 0; i < values.length; i++) {
    values[i] = size === 4 ? stored.getFloat32(4 * i, true) : half(stored.getUint16(2 * i, true));
  }
  return Object.assign(values, { shape });
}
