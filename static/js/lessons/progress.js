// What this reader has done, kept in this browser and nowhere else.

const KEY = "firsttoken.progress";

function read() {
  try {
    const value = JSON.parse(localStorage.getItem(KEY));
    if (value && typeof value.tasks === "object" && typeof value.guesses === "object") return value;
  } catch {
    // storage is forbidden or holds something else: begin anew, for as long as the page lives
  }
  return { version: 1, tasks: {}, guesses: {} };
}

const progress = read();

function write() {
  try {
    localStorage.setItem(KEY, JSON.stringify(progress));
  } catch {
    // see read()
  }
}

/** Whether a task of a lesson is done. */
export const isDone = (lesson, task) => Boolean(progress.tasks[`${lesson}.${task}`]);

/** Notes that a task is done; false if it was before. */
export function note(lesson, task) {
  if (isDone(lesson, task)) return false;
  progress.tasks[`${lesson}.${task}`] = new Date().toISOString();
  write();
  return true;
}

/** How many tasks of a lesson are done. */
export const countDone = (lesson) =>
  Object.keys(progress.tasks).filter((key) => key.startsWith(`${lesson}.`)).length;

/** The reader's guess in a lesson: the number of the choice, or null. */
export const guessOf = (lesson) => progress.guesses[lesson] ?? null;

export function keepGuess(lesson, choice) {
  progress.guesses[lesson] = choice;
  write();
}

/** Everything, as a document to keep. */
export const exported = () => JSON.stringify(progress, null, 2);

/** Forgets everything. */
export function reset() {
  progress.tasks = {};
  progress.guesses = {};
  write();
}
