// Requests live.json twice a second: not while the page is hidden or paused, and less often without an answer.

const INTERVAL_MS = 500;
const LATE_MS = 3000;
const RETRY_MS = 2000;

export class Poll {
  /**
   * `queries()` returns the parameters of each request of a turn. Sections of later answers replace those of the first.
   * A turn ends with a call of `answered(json)` or `failed()`.
   */
  constructor(queries, answered, failed) {
    this.queries = queries;
    this.answered = answered;
    this.failed = failed;
    this.isPaused = false;
    this.timer = null;
    this.isAsking = false;
    document.addEventListener("visibilitychange", () => this.soon());
  }

  /** Pause, or resume at once. */
  pause(isPaused) {
    this.isPaused = isPaused;
    this.soon();
  }

  /** Start a turn, unless one is in progress or the page is hidden. */
  soon(afterMs = 0) {
    clearTimeout(this.timer);
    if (this.isPaused || document.hidden || this.isAsking) return;
    this.timer = setTimeout(() => this.ask(), afterMs);
  }

  async ask() {
    this.isAsking = true;
    const began = performance.now();
    const answers = await Promise.all(this.queries().map((query) => this.answer(query)));
    const merged = answers.includes(null) ? null : together(answers);
    this.isAsking = false;
    this.soon(merged === null ? RETRY_MS : Math.max(50, INTERVAL_MS - (performance.now() - began)));
    if (merged === null) this.failed();
    else if (!this.isPaused) this.answered(merged);
  }

  /** The answer; null if there is none. */
  async answer(query) {
    try {
      // Why not relative: fetch refuses a URL with credentials, which the page's own address may have.
      const url = new URL(`live.json?${new URLSearchParams(query)}`, location.origin + location.pathname);
      const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(LATE_MS) });
      return response.ok ? await response.json() : null;
    } catch {
      return null;
    }
  }
}

function together([first, ...more]) {
  for (const { schema, at_ms, node, ...sections } of more) Object.assign(first, sections);
  return first;
}
