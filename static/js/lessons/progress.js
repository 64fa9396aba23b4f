// What this reader has done, kept in this browser and nowhere else. Other pages may be open beside
// this one: everything is read anew before it is answered or changed, so that none of them writes
// over what another has noted.

const KEY = "firsttoken.progress";
const EMPTY = { version: 1, tasks: {}, guesses: {} };

let unsaved = null; // what storage refused to take: kept for as long as the page lives

const isObject = (value) => typeof value === "object" && value !== null;

function read() {
  if (unsaved) return unsaved;
  try {
    const value = JSON.parse(localStorage.getItem(KEY));
    if (isObject(value) && isObject(value.tasks) && isObject(value.guesses)) return value;
  } catch {
    // storage is forbidden or holds something else: begin anew
  }
  return EMPTY;
}

function write(progress) {
  try {
    localStorage.setItem(KEY, JSON.stringify(progress));
  } catch {
    unsaved = progress;
  }
}

/** Whether a task of a lesson is done. */
export const isDone = (lesson, task) => Boolean(read().tasks[`${lesson}.${task}`]);

/** Notes that a task is done; false if it was before. */
export function note(lesson, task) {
  if (isDone(lesson, task)) return false;
  const progress = read();
  const tasks = { ...progress.tasks, [`${lesson}.${task}`]: new Date().toISOString() };
  write({ ...progress, tasks });
  return true;
}

/** How many tasks of a lesson are done. */
export const countDone = (lesson) =>
  Object.keys(read().tasks).filter((key) => key.startsWith(`${lesson}.`)).length;

/** The reader's guess in a lesson: the number of the choice, or null. */
export const guessOf = (lesson) => read().guesses[lesson] ?? null;

export function keepGuess(lesson, choice) {
  const progress = read();
  write({ ...progress, guesses: { ...progress.guesses, [lesson]: choice } });
}

/** Everything, as a document to keep. */
export const exported = () => JSON.stringify(read(), null, 2);

/** Forgets everything. */
export const reset = () => write(EMPTY);

/** Calls `then` when another page has noted something, and when this one is come back to. */
export function onElsewhere(then) {
  window.addEventListener("storage", ({ key }) => {
    if (key === KEY || key === null) then();
  });
  window.addEventListener("pageshow", ({ persisted }) => persisted && then());
}
