// From the scores of a whole vocabulary to what can be drawn: temperature, top-k, top-p, min-p, in
// the order and with the arithmetic of engine/inference/sampling_draw.py. A test compares the two.

/** The tokens that have a score, the likeliest first and equals by id: {ids, logits}. */
export function rank(logits) {
  const ids = Uint32Array.from(logits.keys()).filter((id) => logits[id] > -Infinity);
  ids.sort((a, b) => logits[b] - logits[a] || a - b);
  return { ids, logits: Float32Array.from(ids, (id) => logits[id]), vocabulary: logits.length };
}

/** Where `value` goes into the ascending `sums`, before its equals or after them. */
function place(sums, value, after) {
  let [low, high] = [0, sums.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sums[middle] < value || (after && sums[middle] === value)) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Weights in float32 as the engine has them: 1 for the likeliest token. */
function weigh({ logits }, temperature) {
  const heat = Math.fround(Math.max(temperature, 1e-30));
  return Float32Array.from(logits, (logit) =>
    Math.exp(Math.fround(Math.fround(logit - logits[0]) / heat)),
  );
}

function sumUp(weights, of = (weight) => weight) {
  let total = 0;
  return Float64Array.from(weights, (weight) => (total += of(weight)));
}

/** How many of the first `count` ranks are at least `least` heavy. */
function heavier(weights, least) {
  let count = 0;
  while (count < weights.length && weights[count] >= least) count += 1;
  return count;
}

/**
 * What can be drawn under these settings. `left`: how many tokens are left after each stage, which
 * are always the first so many ranks. `sums`: weights added up from the first rank on.
 */
export function shape(ranked, { temperature, topK, topP, minP }) {
  const weights = weigh(ranked, temperature);
  const sums = sumUp(weights);
  const all = weights.length;
  const left = { temperature: temperature > 0 ? all : 1 };
  const cutsK = topK > 0 && topK < ranked.vocabulary;
  left.topK = Math.min(left.temperature, cutsK ? topK : all);
  const mass = sums[Math.min(all, cutsK ? topK : all) - 1];
  left.topP = topP < 1 ? Math.min(left.topK, 1 + place(sums, topP * mass, false)) : left.topK;
  left.minP = minP > 0 ? Math.min(left.topP, heavier(weights, Math.fround(minP))) : left.topP;
  return { weights, sums, left, kept: left.minP, total: sums[all - 1] };
}

/** The probability that a rank is drawn; 0 for one that was cut. */
export const chance = ({ weights, sums, kept }, at) => (at < kept ? weights[at] / sums[kept - 1] : 0);

/** Entropy in bits of the first `count` ranks, renormalised. */
export function entropy({ weights, sums }, count) {
  let logs = 0;
  for (let i = 0; i < count; i++) if (weights[i] > 0) logs += weights[i] * Math.log2(weights[i]);
  return Math.max(0, Math.log2(sums[count - 1]) - logs / sums[count - 1]);
}

/** The rank that a number in [0, 1) draws. */
export function pick({ sums, kept }, uniform) {
  const inside = sums.subarray(0, kept);
  return Math.min(place(inside, uniform * sums[kept - 1], true), place(inside, sums[kept - 1], false));
}

/** `count` ranks drawn one after the other. */
export const draw = (shaped, count) =>
  Array.from({ length: count }, () => pick(shaped, Math.random()));
