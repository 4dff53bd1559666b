// The dots that move between the stages. Their number follows the requests that finished, started or stopped waiting.

import { drawn } from "./dom.js";
import { familyOf, keyOf } from "./families.js";

const TRAVEL_MS = 900;
const TURN_MS = 500; // dots of one answer are spread over the time until the next
const DOTS_A_TURN = 14; // upper limit for one family, however many requests there are
const DOTS_MAX = 240;

// The lines: start and end, each as stage, side and share of that side; in the order in which a request follows them.
const WAYS = {
  in: ["clients", "right", 0.22, "processors", "left", 0.22],
  ask: ["processors", "right", 0.35, "queue", "left", 0.35],
  take: ["queue", "right", 0.35, "handlers", "left", 0.35],
  park: ["handlers", "right", 0.35, "purgatories", "left", 0.25],
  answer: ["handlers", "bottom", 0.45, "responses", "top", 0.62],
  wake: ["purgatories", "left", 0.86, "responses", "right", 0.5],
  collect: ["responses", "top", 0.16, "processors", "bottom", 0.5],
  out: ["processors", "left", 0.72, "clients", "right", 0.72],
};
const OF_CONTROLLER = {
  ...WAYS,
  park: ["handlers", "right", 0.35, "events", "left", 0.35],
  wake: ["events", "left", 0.86, "responses", "right", 0.5],
  push: ["events", "right", 0.35, "senders", "left", 0.35],
};
const THROUGH = ["in", "ask", "take", "answer", "collect", "out"];

export class Flow {
  constructor(grid, stages, role) {
    this.grid = grid;
    this.stages = stages;
    this.ways = role === "controller" ? OF_CONTROLLER : WAYS;
    this.paths = {};
    this.dots = [];
    this.waiting = new Map(); // the requests that waited at the last answer: family by key
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    const arrow = drawn(
      "marker",
      { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 5, markerHeight: 5, orient: "auto" },
      drawn("path", { d: "M0 0L8 4L0 8z" }),
    );
    this.lines = drawn("g");
    this.layer = drawn("g");
    this.svg = drawn(
      "svg",
      { class: "flow", "aria-hidden": "true" },
      drawn("defs", {}, arrow),
      this.lines,
      this.layer,
    );
    grid.prepend(this.svg);
    for (const name of Object.keys(this.ways)) {
      this.paths[name] = drawn("path", { "marker-end": "url(#arrow)" });
      this.lines.append(this.paths[name]);
    }
    new ResizeObserver(() => this.lay()).observe(grid);
  }

  /** Draw the lines between the stages. */
  lay() {
    const origin = this.grid.getBoundingClientRect();
    for (const [name, [from, fromSide, fromShare, to, toSide, toShare]] of Object.entries(this.ways)) {
      const begin = point(this.stages[from].article.getBoundingClientRect(), fromSide, fromShare, origin);
      const end = point(this.stages[to].article.getBoundingClientRect(), toSide, toShare, origin);
      this.paths[name].setAttribute("d", curve(begin, fromSide, end, toSide));
    }
  }

  /** Start dots for the changes since the last answer. */
  show(live, rates) {
    const waiting = new Map(everyoneWaiting(live).map((request) => [keyOf(request), familyOf(request)]));
    const came = [...waiting].filter(([key]) => !this.waiting.has(key)).map(([, family]) => family);
    const went = [...this.waiting].filter(([key]) => !waiting.has(key)).map(([, family]) => family);
    const isFirst = this.waiting.size === 0;
    this.waiting = waiting;
    if (
      this.calm.matches ||
      rates === null ||
      document.hidden ||
      getComputedStyle(this.svg).display === "none"
    )
      return;
    if (!isFirst) {
      this.sendAll(came.slice(0, DOTS_A_TURN), ["in", "ask", "take", "park"]);
      this.sendAll(went.slice(0, DOTS_A_TURN), ["wake", "collect", "out"]);
    }
    for (const [family, perSecond] of Object.entries(rates)) {
      const dots = Math.min(DOTS_A_TURN, Math.ceil(Math.sqrt((perSecond * TURN_MS) / 1000)));
      if (perSecond > 0) this.sendAll(Array(dots).fill(family), THROUGH);
    }
  }

  sendAll(families, ways) {
    families.forEach((family, index) =>
      this.send(family, ways, ((index + Math.random()) / families.length) * TURN_MS),
    );
  }

  send(family, ways, delayMs) {
    if (this.dots.length >= DOTS_MAX) return;
    const circle = drawn("circle", { "data-family": family, visibility: "hidden" });
    circle.style.fill = "var(--family)";
    this.layer.append(circle);
    this.dots.push({ circle, ways, at: 0, begin: performance.now() + delayMs });
    if (this.dots.length === 1) requestAnimationFrame((now) => this.move(now));
  }

  move(now) {
    this.dots = this.dots.filter((dot) => this.step(dot, now));
    if (this.dots.length > 0) requestAnimationFrame((next) => this.move(next));
  }

  /** Move one dot; false once it has arrived. */
  step(dot, now) {
    if (now < dot.begin) return true;
    const path = this.paths[dot.ways[dot.at]];
    const length = path.getTotalLength();
    const travelMs = Math.max(180, (length / 140) * TRAVEL_MS * 0.5);
    const share = (now - dot.begin) / travelMs;
    if (share >= 1 || length === 0) {
      dot.at += 1;
      dot.begin = now + 60; // a pause inside the stage
      dot.circle.setAttribute("visibility", "hidden");
      if (dot.at < dot.ways.length) return true;
      dot.circle.remove();
      return false;
    }
    const { x, y } = path.getPointAtLength(length * share);
    dot.circle.setAttribute("cx", x);
    dot.circle.setAttribute("cy", y);
    dot.circle.setAttribute("visibility", "visible");
    return true;
  }
}

/** The parked requests that the answer contains. */
function everyoneWaiting(live) {
  const places = [...(live.purgatories ?? []), live.elsewhere];
  return places
    .flatMap((place) => place.items.map((item) => item.request))
    .filter((request) => request !== null);
}

function point(box, side, share, origin) {
  const x = side === "left" ? box.left : side === "right" ? box.right : box.left + box.width * share;
  const y = side === "top" ? box.top : side === "bottom" ? box.bottom : box.top + box.height * share;
  return [x - origin.left, y - origin.top];
}

function curve([x1, y1], fromSide, [x2, y2], toSide) {
  const reach = 22;
  const [dx1, dy1] = away(fromSide, reach);
  const [dx2, dy2] = away(toSide, reach);
  return `M${x1} ${y1}C${x1 + dx1} ${y1 + dy1} ${x2 + dx2} ${y2 + dy2} ${x2} ${y2}`;
}

function away(side, reach) {
  return { left: [-reach, 0], right: [reach, 0], top: [0, -reach], bottom: [0, reach] }[side];
}
