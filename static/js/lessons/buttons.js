// Buttons that need the engine wait for it, and work again by themselves once it is there.

import { isReady, onReady } from "./ready.js";

/**
 * Keeps `buttons` disabled while the engine is not ready or `may()` is false, and shows `note`
 * while it is the engine that they wait for. Returns what to call when `may()` changed.
 */
export function needEngine(buttons, note, may = () => true) {
  const update = () => {
    note.hidden = isReady();
    for (const button of buttons) button.disabled = !isReady() || !may();
  };
  onReady(update);
  return update;
}
