// The delete tokens of runs that were saved from this browser, kept in it and nowhere else.

const KEY = "firsttoken.runs";
const MOST = 200;

function read() {
  try {
    const value = JSON.parse(localStorage.getItem(KEY));
    return value && typeof value === "object" ? value : {};
  } catch {
    return {}; // storage is forbidden or holds something else
  }
}

function write(tokens) {
  try {
    localStorage.setItem(KEY, JSON.stringify(tokens));
  } catch {
    // see read()
  }
}

/** The token that deletes run `id`, null where this browser has none. */
export const tokenOf = (id) => read()[id] ?? null;

export function keepToken(id, token) {
  const entries = Object.entries({ ...read(), [id]: token });
  write(Object.fromEntries(entries.slice(-MOST)));
}

export function forgetToken(id) {
  const { [id]: _, ...rest } = read();
  write(rest);
}
