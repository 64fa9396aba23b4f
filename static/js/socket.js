// One websocket for the page: it comes back by itself, and never more than one is open.

const FIRST_DELAY = 500;
const LONGEST_DELAY = 8000;
const KEEP_ALIVE = 20000;
// The server said stop: trying again would not help.
const FINAL_CODES = new Set([1008, 4401, 4403]);

export class Socket {
  #url;
  #on;
  #socket = null;
  #timer = null;
  #alive = null;
  #failures = 0;

  /** `on` has `open()`, `event(object)`, `lost(final)`. */
  constructor(path, on) {
    const url = new URL(path, location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    this.#url = url.href;
    this.#on = on;
    addEventListener("pagehide", () => this.close());
    addEventListener("pageshow", (event) => event.persisted && this.open());
    addEventListener("online", () => this.#timer !== null && this.open());
  }

  get ready() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  /** Connects now, unless a connection is there or on its way. */
  open() {
    clearTimeout(this.#timer);
    this.#timer = null;
    if (this.#socket) return;
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    const mine = () => this.#socket === socket;
    socket.addEventListener("open", () => {
      if (!mine()) return;
      clearInterval(this.#alive);
      this.#alive = setInterval(() => this.send({ type: "ping" }), KEEP_ALIVE);
      this.#on.open();
    });
    socket.addEventListener("message", ({ data }) => {
      if (!mine()) return;
      this.#failures = 0;
      this.#on.event(JSON.parse(data));
    });
    socket.addEventListener("close", ({ code }) => {
      if (!mine()) return;
      this.#forget();
      const final = FINAL_CODES.has(code);
      if (!final) this.#later();
      this.#on.lost(final);
    });
  }

  /** Sends a message; false where there is no connection. */
  send(message) {
    if (!this.ready) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  /** Closes for good; no timer brings the connection back. */
  close() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const socket = this.#socket;
    this.#forget();
    socket?.close(1000);
  }

  #forget() {
    clearInterval(this.#alive);
    this.#alive = null;
    this.#socket = null;
  }

  #later() {
    const delay = Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** this.#failures);
    this.#failures += 1;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.open(), delay * (0.5 + Math.random() / 2));
  }
}
