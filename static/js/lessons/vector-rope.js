// The arithmetic of rotary positions (Su et al. 2021, "RoFormer"): pairs of numbers turned by an
// angle that grows with the position.

/** The pair of `dimensions` of a vector, turned by `angle` in radians. */
export function rotated(vector, [i, j], angle) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return [vector[i] * c - vector[j] * s, vector[i] * s + vector[j] * c];
}

/**
 * The scaled score of a query at position `m` and a key at position `n`: all pairs turned, then the
 * dot product, times the scale. `seen`: q and k before rotation, pairs with their step, scale.
 */
export function scoreAt({ q, k, pairs, scale }, m, n) {
  let total = 0;
  for (const { dimensions, step } of pairs) {
    const [a, b] = rotated(q, dimensions, m * step);
    const [c, d] = rotated(k, dimensions, n * step);
    total += a * c + b * d;
  }
  return total * scale;
}
