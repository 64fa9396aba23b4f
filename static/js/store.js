// The page's state and one repaint a frame, however many events arrive.

const widgets = [];
let asked = false;

export const store = {
  /** The run that the widgets show, null before the first: the live one, or a replay of it. */
  run: null,
  /** The run that the engine answers or answered last, null before the first. */
  live: null,
  /** The run before that one, or the saved one that it repeats; null if there is none. */
  before: null,
  /** Index into run.steps of the step that the reader looks at, or null. */
  selected: null,
  /** What the engine said about itself, null while it is not known. */
  facts: null,
  /** This machine's measured roof for the dtype that is drawn: {dtype, bandwidth, peak} or null. */
  roof: null,
};

/** Registers a widget: called with the store once a frame after something changed. */
export function onPaint(widget) {
  widgets.push(widget);
}

function paint() {
  asked = false;
  for (const widget of widgets) {
    try {
      widget(store);
    } catch (error) {
      reportError(error); // one widget's fault must not blank the others
    }
  }
}

/** Says that something changed. A hidden page does not paint, so it is painted at once there. */
export function changed() {
  if (asked) return;
  asked = true;
  if (document.hidden) setTimeout(paint, 250);
  else requestAnimationFrame(paint);
}

/** Looks at one step, in every widget at once. */
export function select(index) {
  if (store.selected === index) return;
  store.selected = index;
  changed();
}

/** The measured roof, if it is the one for the run's own dtype. */
export function roofOf(run) {
  const roof = store.roof;
  return roof?.peak && roof.dtype === run.accepted?.dtype ? roof : null;
}

/** The lane that the run is in: its formats of weights and KV cache, and their bytes. */
export const laneOf = (run) => run.accepted?.lane ?? null;
