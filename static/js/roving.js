// One tab stop for a row of many elements; arrow keys move inside it (roving tabindex).

/**
 * Makes the children of `container` that match `selector` one tab stop.
 * `onFocus(element)` is called for the one that has the focus or the pointer, and with null after.
 */
export function rove(container, selector, onFocus) {
  const items = () => [...container.querySelectorAll(selector)];
  let current = null;

  const enter = (item) => {
    if (current && current !== item) current.tabIndex = -1;
    current = item;
    if (item) item.tabIndex = 0;
  };

  container.addEventListener("focusin", (event) => {
    const item = event.target.closest(selector);
    if (!item) return;
    enter(item);
    onFocus(item);
  });
  container.addEventListener("focusout", () => onFocus(null));
  container.addEventListener("pointerover", (event) => {
    const item = event.target.closest(selector);
    if (item) onFocus(item);
  });
  container.addEventListener("pointerleave", () => {
    onFocus(container.contains(document.activeElement) ? document.activeElement : null);
  });
  container.addEventListener("pointerdown", (event) => {
    const item = event.target.closest(selector);
    if (item && event.pointerType !== "mouse") item.focus();
  });
  container.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const edge = { Home: 0, End: -1 }[event.key];
    if (step === undefined && edge === undefined) return;
    const all = items();
    const at = all.indexOf(document.activeElement);
    const next = step === undefined ? all.at(edge) : all[at + step];
    event.preventDefault();
    next?.focus();
  });

  return {
    /** To be called after items were added: the first one becomes the tab stop. */
    refresh() {
      if (!current || !container.contains(current)) enter(container.querySelector(selector));
    },
  };
}
