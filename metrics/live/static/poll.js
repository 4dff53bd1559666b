// Asks for live.json twice a second: not while the page is hidden or paused, less often while nobody answers.

const INTERVAL_MS = 500;
const LATE_MS = 3000;
const RETRY_MS = 2000;

export class Poll {
  /**
   * `queries()` gives the parameters of each question that is asked at a time: what a later one tells takes the place
   * of what the first told. `answered(json)` and `failed()` hear what became of it.
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

  /** Pause, or go on at once. */
  pause(isPaused) {
    this.isPaused = isPaused;
    this.soon();
  }

  /** Ask now, unless a question is under way or nobody looks. */
  soon(afterMs = 0) {
    clearTimeout(this.timer);
    if (this.isPaused || document.hidden || this.isAsking) return;
    this.timer = setTimeout(() => this.ask(), afterMs);
  }

  async ask() {
    this.isAsking = true;
    const began = performance.now();
    const answers = await Promise.all(this.queries().map((query) => this.answer(query)));
    const told = answers.includes(null) ? null : together(answers);
    this.isAsking = false;
    this.soon(told === null ? RETRY_MS : Math.max(50, INTERVAL_MS - (performance.now() - began)));
    if (told === null) this.failed();
    else if (!this.isPaused) this.answered(told);
  }

  /** The answer; null if there is none. */
  async answer(query) {
    try {
      const url = `live.json?${new URLSearchParams(query)}`;
      const response = await fetch(url, { cache: "no-store", signal: AbortSignal.timeout(LATE_MS) });
      return response.ok ? await response.json() : null;
    } catch {
      return null;
    }
  }
}

function together([told, ...more]) {
  for (const { schema, at_ms, node, ...sections } of more) Object.assign(told, sections);
  return told;
}
