// A grid of cells with one tab stop: arrows move in both directions, Home and End along a row.

const MOVES = {
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  Home: [0, -Infinity],
  End: [0, Infinity],
  PageUp: [-Infinity, 0],
  PageDown: [Infinity, 0],
};

/**
 * Cells are the elements of `grid` with `data-row` and `data-column`; one of them has tabindex 0.
 * `onFocus(cell)` hears which has the focus or the pointer, `onPick(cell)` which was clicked or
 * chosen with Enter or Space.
 */
export function gridKeys(grid, { onFocus, onPick }) {
  const at = (row, column) => grid.querySelector(`[data-row="${row}"][data-column="${column}"]`);
  const clamp = (value, most) => Math.min(most, Math.max(0, value));

  const stop = (cell) => {
    for (const other of grid.querySelectorAll('[tabindex="0"]')) other.tabIndex = -1;
    cell.tabIndex = 0;
  };

  grid.addEventListener("keydown", (event) => {
    const cell = event.target.closest("[data-row]");
    if (!cell) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onPick(cell);
      return;
    }
    const move = MOVES[event.key];
    if (!move) return;
    event.preventDefault();
    const row = clamp(Number(cell.dataset.row) + move[0], Number(grid.dataset.rows) - 1);
    const column = clamp(Number(cell.dataset.column) + move[1], Number(grid.dataset.columns) - 1);
    at(row, column)?.focus();
  });
  grid.addEventListener("focusin", ({ target }) => {
    const cell = target.closest("[data-row]");
    if (!cell) return;
    stop(cell);
    onFocus(cell);
  });
  grid.addEventListener("pointerover", ({ target }) => {
    const cell = target.closest("[data-row]");
    if (cell) onFocus(cell);
  });
  grid.addEventListener("click", ({ target }) => {
    const cell = target.closest("[data-row]");
    if (!cell) return;
    stop(cell);
    onPick(cell);
  });

  return { at, stop };
}
