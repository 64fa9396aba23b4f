// The texts that a reader has walked through: one beginning, and every branch that was taken.

/** A place after which something can be taken. `choice` is the candidate that led here. */
function place(parent, choice) {
  return { parent, choice, depth: parent ? parent.depth + 1 : 0, branches: new Map(), next: null };
}

/** A tree with nothing taken yet. `prompt`: the tokens {id, special, bytes} of the beginning. */
export function newTree(prompt) {
  const root = place(null, null);
  return { prompt, root, at: root };
}

/** The places from the first taken token to `end`. */
export function pathTo(end) {
  const path = [];
  for (let at = end; at.parent; at = at.parent) path.unshift(at);
  return path;
}

/** All token ids of the text that ends at `end`. */
export const idsTo = (tree, end) => [
  ...tree.prompt.map((token) => token.id),
  ...pathTo(end).map((at) => at.choice.id),
];

const fromHex = (digits) =>
  Uint8Array.from({ length: digits.length / 2 }, (_, i) => parseInt(digits.slice(2 * i, 2 * i + 2), 16));

/** What each token adds to the text: "" for one that ends inside a character. */
export function textsOf(tokens) {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return tokens.map(({ bytes }) => decoder.decode(fromHex(bytes), { stream: true }));
}

/** Goes on from where the reader is with a candidate; a branch that was taken before is kept. */
export function take(tree, choice) {
  const { at } = tree;
  if (!at.branches.has(choice.id)) at.branches.set(choice.id, place(at, choice));
  tree.at = at.branches.get(choice.id);
}

/** The ends of all branches, the oldest first. */
export function ends(at) {
  const branches = [...at.branches.values()];
  return branches.length ? branches.flatMap(ends) : at.parent ? [at] : [];
}

/** How many tokens follow a place on its longest branch. */
const height = (at) => Math.max(0, ...[...at.branches.values()].map((next) => 1 + height(next)));

/** Whether two branches of one fork have at least `least` tokens each. */
export function hasTwoWays(at, least) {
  const branches = [...at.branches.values()];
  const long = branches.filter((next) => 1 + height(next) >= least);
  return long.length > 1 || branches.some((next) => hasTwoWays(next, least));
}

/** How many tokens the reader has gone on since taking one that was not the likeliest. */
export function sinceOther(tree) {
  const found = pathTo(tree.at).filter((at) => at.choice.rank > 0);
  return found.length ? tree.at.depth - found[0].depth : -1;
}

/** How many tokens the texts that end at `a` and at `b` have in common after the beginning. */
export function shared(a, b) {
  const [left, right] = [pathTo(a), pathTo(b)];
  const fork = left.findIndex((at, i) => at !== right[i]);
  return fork < 0 ? left.length : fork;
}
