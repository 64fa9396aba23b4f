// Questions of one widget, of which only the last one counts.

/**
 * Runs questions so that an older one is ended by the next. `ask(work, failed)` calls
 * `work(signal)`; `failed(problem)` hears what went wrong, and null when it works again.
 */
export function latest() {
  let current = null;
  return async (work, failed) => {
    current?.abort();
    const mine = new AbortController();
    current = mine;
    try {
      await work(mine.signal);
      if (current === mine) failed(null);
    } catch (error) {
      if (error.name === "AbortError" || current !== mine) return;
      if (error.name !== "Problem") throw error;
      failed(error);
    }
  };
}

/** Puts a problem's sentence into a paragraph, or takes it away. */
export const tellIn = (node) => (problem) => {
  node.textContent = problem?.message ?? "";
};
