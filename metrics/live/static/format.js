// Numbers and durations in a readable form.

const WHOLE = new Intl.NumberFormat("en");

/** 12345 -> 12,345 */
export function whole(number) {
  return WHOLE.format(Math.round(number));
}

/** Milliseconds: 0.31 -> 0.31 ms, 12.3 -> 12 ms, 4100 -> 4.1 s, 185000 -> 3 min 5 s */
export function duration(ms) {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A rate: 0 -> 0, 0.34 -> 0.3, 412.3 -> 412; without a unit. */
export function rate(perSecond) {
  return perSecond > 0 && perSecond < 9.95 ? perSecond.toFixed(1) : whole(perSecond);
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** 123456 -> 123 kB */
export function bytes(count) {
  let unit = 0;
  let size = count;
  while (size >= 999.5 && unit < UNITS.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${size < 9.95 && unit > 0 ? size.toFixed(1) : Math.round(size)} ${UNITS[unit]}`;
}

/** 0.873 -> 87 % */
export function percent(share) {
  return `${Math.round(share * 100)} %`;
}

/** (1, "client") -> 1 client, (3, "client") -> 3 clients */
export function count(number, thing, things = `${thing}s`) {
  return `${whole(number)} ${number === 1 ? thing : things}`;
}

/** ["a", "b", "c"] -> a, b and c */
export function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}
