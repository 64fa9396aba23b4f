// Finds the text of the reader among the tokens of a prompt that a chat template has framed.

/** The bytes of a text, a character each, so that positions in them can be counted. */
const binary = (text) =>
  Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");

/** The bytes of a token: where it holds a part of a character, its piece spells them as <F0>. */
const pieceBytes = (piece) =>
  piece
    .split(/(<[89A-F][0-9A-F]>)/)
    .map((part, i) => (i % 2 ? String.fromCharCode(parseInt(part.slice(1, 3), 16)) : binary(part)))
    .join("");

/** How many tokens hold the reader's own text; 0 where it cannot be found among the pieces. */
export function ownTokens(text, pieces) {
  const parts = pieces.map(pieceBytes);
  const wanted = binary(text.trim());
  const from = parts.join("").lastIndexOf(wanted);
  if (from < 0 || !wanted) return 0;
  let at = 0;
  return parts.filter((part) => {
    const start = at;
    at += part.length;
    return at > from && start < from + wanted.length;
  }).length;
}
