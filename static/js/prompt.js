// What the server would not take is told before it is sent, in the reader's language.

// The limits of webapp/schemas/live_requests.py and webapp/live/connection.py; a test compares them.
export const MAX_PROMPT_CHARS = 32768;
const MAX_PROMPT_BYTES = 61440;
const MAX_MESSAGE_BYTES = 65536;

const bytes = (text) => new TextEncoder().encode(text).length;

/** Why a request of the protocol's `generate` can't be sent: "empty", "too_long" or null. */
export function promptProblem(request) {
  const text = request.prompt ?? request.messages.map(({ content }) => content).join("");
  if (!text) return "empty";
  const long =
    [...text].length > MAX_PROMPT_CHARS ||
    bytes(text) > MAX_PROMPT_BYTES ||
    bytes(JSON.stringify(request)) > MAX_MESSAGE_BYTES;
  return long ? "too_long" : null;
}
