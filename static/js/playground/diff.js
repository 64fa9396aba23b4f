// Where two answers part, and which of their tokens they still share after that.

/** Longest rest that is compared token by token: the comparison takes the product of both. */
const MOST = 1500;

/** Whether `a` and `b` (tokens) say the same. */
const same = (a, b) => a.id === b.id && a.piece === b.piece;

/** The number of tokens at the beginning that are the same. */
export function sharedPrefix(a, b) {
  const most = Math.min(a.length, b.length);
  let at = 0;
  while (at < most && same(a[at], b[at])) at += 1;
  return at;
}

/** For every token of `a` and of `b` whether the other has it too, in the same order. */
export function shared(a, b) {
  const from = sharedPrefix(a, b);
  const marks = [a.map((_, i) => i < from), b.map((_, i) => i < from)];
  const [n, m] = [a.length - from, b.length - from];
  if (n > MOST || m > MOST) return marks;
  // Longest common subsequence of what comes after: its length for every pair of rests.
  const width = m + 1;
  const lengths = new Uint16Array((n + 1) * width);
  for (let i = n - 1; i >= 0; i -= 1) {
    for (let j = m - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = same(a[from + i], b[from + j])
        ? lengths[(i + 1) * width + j + 1] + 1
        : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  for (let i = 0, j = 0; i < n && j < m; ) {
    if (same(a[from + i], b[from + j])) {
      marks[0][from + i] = true;
      marks[1][from + j] = true;
      i += 1;
      j += 1;
    } else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return marks;
}
