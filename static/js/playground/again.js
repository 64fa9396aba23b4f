// "Run it again here": the settings of a recorded run, carried to the form of the first page.

/** Where the form's content is kept from page to page, in this tab. */
export const KEY = "first-token.ask";

/** The fields of the form for what `run` was asked, with the seed that it was drawn with. */
function fieldsOf({ request, accepted }) {
  const text = (value) => String(value ?? "");
  return {
    prompt: request.prompt ?? request.messages.at(-1).content,
    mode: request.messages ? "chat" : "text",
    max_tokens: text(request.max_tokens),
    temperature: text(request.temperature),
    top_k: text(request.top_k),
    top_p: text(request.top_p),
    min_p: text(request.min_p),
    repetition_penalty: text(request.repetition_penalty),
    seed: text(accepted.seed),
    stop_text: text(request.stop?.[0]),
    dtype: accepted.dtype,
    weights: text(request.weights),
    kv_cache: request.kv_cache,
    prefix_cache: request.prefix_cache ? "on" : "",
    speculation: text(request.speculation?.method),
  };
}

/** Goes to the first page at `address` with the settings of `run`, saved under `id`. */
export function runAgain(run, id, address) {
  try {
    sessionStorage.setItem(KEY, JSON.stringify({ fields: fieldsOf(run), left: false, again: id }));
  } catch {
    // Storage can be forbidden; then the first page opens with its own settings.
  }
  location.assign(address);
}
