// The picture: the stages that a request passes, as threads, queues and chips. A chip is one request.

import { element, setText, set, style, sync } from "./dom.js";
import { FAMILIES, familyOf, keyOf } from "./families.js";
import { count, duration, percent, rate, whole } from "./format.js";
import { Flow } from "./flow.js";

const CHIPS = 48;
const OLD_MS = 2000; // longer waits stand out, unless they are intended
const ON_PURPOSE = new Set(["fetch", "fetch consumer"]);

const STAGES = {
  broker: [
    ["clients", "Acceptors", "#threads"],
    ["processors", "Network processors", "#threads"],
    ["queue", "Request queue", "#threads"],
    ["handlers", "Request handlers", "#threads"],
    ["purgatories", "Purgatories", "#waiting"],
    ["responses", "Response queues", "#threads"],
  ],
  controller: [
    ["clients", "Acceptors", "#threads"],
    ["processors", "Network processors", "#threads"],
    ["queue", "Request queue", "#threads"],
    ["handlers", "Request handlers", "#threads"],
    ["events", "Event thread", "#brokers"],
    ["senders", "Senders", "#brokers"],
    ["responses", "Response queues", "#threads"],
  ],
};

/** Whether an operation waits longer than it should. */
export function isOld(waiting) {
  return waiting.age_ms > OLD_MS && !ON_PURPOSE.has(waiting.operation);
}

export class Picture {
  constructor(section, role) {
    this.stages = {};
    set(section, "data-role", role);
    const grid = element("div", { class: "stages" });
    for (const [name, title, panel] of STAGES[role]) {
      const figure = element("span", { class: "figure" });
      const heading = element("h2", {}, element("a", { href: panel }, title));
      const body = element("div", { class: "body" });
      const article = element(
        "article",
        { class: "stage", "data-stage": name },
        element("header", {}, heading, figure),
        body,
      );
      this.stages[name] = { article, figure, body };
      grid.append(article);
    }
    section.replaceChildren(grid);
    this.flow = new Flow(grid, this.stages, role);
  }

  /** Show an answer; `rates` are requests per second by family, or null. */
  show(live, rates) {
    this.showClients(live, rates);
    this.showProcessors(live);
    this.showQueue(live);
    this.showHandlers(live);
    this.showResponses(live);
    if (live.node.role === "broker") this.showPurgatories(live);
    else this.showController(live);
    this.flow.show(live, rates);
  }

  showClients(live, rates) {
    const { body, figure } = this.stages.clients;
    const connections = live.acceptors.reduce((sum, acceptor) => sum + acceptor.connections, 0);
    setText(figure, count(connections, "connection"));
    const [listeners, legend] = parts(body, ["ul", "threads"], ["ul", "legend"]);
    sync(
      listeners,
      live.acceptors,
      (a) => a.listener,
      makeThread,
      (child, acceptor) => {
        showThread(child, "sleeping", `:${acceptor.port}`, acceptor.listener, null);
        set(
          child,
          "title",
          `${acceptor.listener} accepts on port ${acceptor.port} and passes connections to the processors`,
        );
      },
    );
    const families = Object.entries(FAMILIES).filter(
      ([family]) => rates !== null && (rates[family] > 0 || SHOWN[live.node.role].includes(family)),
    );
    sync(
      legend,
      families,
      ([family]) => family,
      makeLegend,
      (child, [family, name]) => {
        setText(child.children[1], name);
        setText(child.children[2], `${rate(rates[family])} /s`);
      },
    );
  }

  showProcessors(live) {
    const { article, body, figure } = this.stages.processors;
    const [list] = parts(body, ["ul", "threads"]);
    const blocked = live.processors.some((processor) => processor.state === "waiting_for_room");
    set(article, "data-mood", blocked ? "warn" : null);
    const idle = live.processors.reduce((sum, processor) => sum + processor.idle, 0) / live.processors.length;
    setText(figure, `${percent(idle)} idle`);
    sync(
      list,
      live.processors,
      (p) => p.id,
      makeThread,
      (child, processor) => {
        const asleep = `${count(processor.connections, "connection")}, ${whole(processor.muted)} busy`;
        showThread(
          child,
          processor.state,
          processor.id,
          processor.state === "sleeping" ? asleep : processor.doing,
          null,
        );
        set(child, "title", `processor ${processor.id} of ${processor.listener} ${processor.doing}`);
      },
    );
  }

  showQueue(live) {
    const queue = live.request_queue;
    const { article, body, figure } = this.stages.queue;
    const [fill, chips] = parts(body, ["div", "fill"], ["div", "chips"]);
    if (!fill.firstChild) fill.append(element("i"));
    const share = queue.capacity > 0 ? queue.total / queue.capacity : 0;
    const mood = share >= 0.8 || queue.blocked_processors > 0 ? "warn" : null;
    set(article, "data-mood", mood);
    set(fill, "data-mood", mood);
    style(fill, "--share", `${Math.min(100, share * 100)}%`);
    setText(figure, `${whole(queue.total)} of ${whole(queue.capacity)}`);
    showChips(
      chips,
      queue.items.map((request) => ({ request })),
      queue.total,
    );
  }

  showHandlers(live) {
    const { body, figure } = this.stages.handlers;
    const [list, more] = parts(body, ["ul", "threads"], ["p", "soft"]);
    setText(figure, `${percent(live.handlers.idle)} idle`);
    const shown = live.handlers.items.slice(0, 16);
    sync(
      list,
      shown,
      (h) => h.id,
      makeThread,
      (child, handler) => {
        const request = handler.request;
        const what =
          request === null
            ? `idle ${duration(handler.since_ms)}`
            : `${request.api ?? "?"} · ${request.client_id ?? "no name"}`;
        showThread(child, handler.state, handler.id, what, request === null ? null : familyOf(request));
        set(child, "title", `handler ${handler.id} ${handler.doing}, for ${duration(handler.since_ms)}`);
      },
    );
    setText(more, live.handlers.total > shown.length ? `and ${live.handlers.total - shown.length} more` : "");
  }

  showPurgatories(live) {
    const { article, body, figure } = this.stages.purgatories;
    const [list] = parts(body, ["ul", "waits"]);
    const places = live.purgatories.map((place) => ({
      name: place.name,
      total: place.delayed,
      items: place.items,
    }));
    places.push({ name: "elsewhere", total: live.elsewhere.total, items: live.elsewhere.items });
    const old = places.flatMap((place) => place.items).filter(isOld).length;
    set(article, "data-mood", old > 0 ? "warn" : null);
    setText(figure, `${whole(places.reduce((sum, place) => sum + place.total, 0))} wait`);
    sync(
      list,
      places,
      (place) => place.name,
      makePlace,
      (child, place) => {
        const [name, total] = child.firstElementChild.children;
        setText(name, PLACE_NAMES[place.name] ?? place.name);
        setText(total, whole(place.total));
        child.lastElementChild.hidden = place.total === 0 && !STEADY_PLACES.has(place.name);
        showChips(child.lastElementChild, place.items, place.total, 20);
      },
    );
  }

  showResponses(live) {
    const { body, figure } = this.stages.responses;
    const [list] = parts(body, ["ul", "threads"]);
    const waiting = (p) => p.response_queue.total + p.sending.total;
    setText(figure, `${whole(live.processors.reduce((sum, p) => sum + waiting(p), 0))} responses waiting`);
    sync(
      list,
      live.processors,
      (p) => p.id,
      makeResponses,
      (child, processor) => {
        setText(child.firstElementChild, `processor ${processor.id}`);
        const requests = [...processor.response_queue.items, ...processor.sending.items].map((request) => ({
          request,
        }));
        showChips(child.lastElementChild, requests, waiting(processor), 12);
      },
    );
  }

  showController(live) {
    const { body, figure } = this.stages.events;
    const [fill, chips, doing] = parts(body, ["div", "fill"], ["div", "chips"], ["p", "soft"]);
    if (!fill.firstChild) fill.append(element("i"));
    style(fill, "--share", `${(1 - live.events.idle) * 100}%`);
    setText(figure, `${percent(live.events.idle)} idle`);
    showChips(
      chips,
      live.events.items.map((event, index) => ({ key: index, family: "control", ...event })),
      live.events.total,
    );
    const waiting = live.events.total > 0 ? `; ${whole(live.events.total)} wait` : "";
    setText(
      doing,
      (live.events.deciding === null ? "sleeps until an event arrives" : `decides ${live.events.deciding}`) +
        waiting,
    );
    const senders = this.stages.senders;
    const [list] = parts(senders.body, ["ul", "threads"]);
    setText(senders.figure, `${whole(live.brokers.reduce((sum, broker) => sum + broker.push_queue, 0))} to push`);
    sync(
      list,
      live.brokers,
      (b) => b.id,
      makeThread,
      (child, broker) => {
        const state =
          broker.push_queue > 0 ? (broker.push_failures > 0 ? "waiting_for_room" : "busy") : "sleeping";
        const what =
          broker.push_queue > 0 ? `${broker.push_queue} to push` : broker.state.replaceAll("_", " ");
        showThread(child, state, `to ${broker.id}`, what, "control");
      },
    );
  }
}

// The families that the legend shows even at a rate of 0.
const SHOWN = { broker: ["produce", "consume", "follow"], controller: ["control"] };
// These keep their place while they are empty, so that the layout does not jump.
const STEADY_PLACES = new Set(["Produce", "Fetch", "elsewhere"]);
const PLACE_NAMES = {
  elsewhere: "With a coordinator",
  topic: "Topics (controller)",
  DeleteRecords: "Delete records",
};

/** The parts of a stage's body, made once. */
function parts(body, ...wanted) {
  if (!body.firstChild) {
    body.append(...wanted.map(([name, kind]) => element(name, { class: kind })));
  }
  return body.children;
}

function makeThread() {
  return element(
    "li",
    { class: "thread" },
    element("i", { class: "lamp", "aria-hidden": "true" }),
    element("b"),
    element("span"),
  );
}

function showThread(child, state, name, what, family) {
  set(child, "data-state", state);
  set(child, "data-family", family);
  setText(child.children[1], name);
  setText(child.children[2], what);
}

function makeLegend([family]) {
  return element(
    "li",
    { "data-family": family },
    element("i", { class: "dot", "aria-hidden": "true" }),
    element("span"),
    element("span", { class: "number" }),
  );
}

function makePlace() {
  return element(
    "li",
    {},
    element("div", { class: "line" }, element("b"), element("span", { class: "soft" })),
    element("div", { class: "chips", "aria-hidden": "true" }),
  );
}

function makeResponses() {
  return element(
    "li",
    {},
    element("span", { class: "soft" }),
    element("div", { class: "chips", "aria-hidden": "true" }),
  );
}

/** Show a chip for each request, up to `most`, and the number of the rest. */
function showChips(parent, waiting, total, most = CHIPS) {
  const shown = waiting.slice(0, most).map((item, index) => ({ item, index }));
  if (total > shown.length) shown.push({ rest: total - shown.length });
  sync(parent, shown, chipKey, makeChip, (chip, { item, rest }) => {
    if (item === undefined) setText(chip, `+${whole(rest)}`);
    else set(chip, "data-old", item.operation !== undefined && isOld(item) ? "" : null);
  });
}

function chipKey({ item, index, rest }) {
  if (rest !== undefined) return "rest";
  if (item.request) return keyOf(item.request);
  return `${item.key ?? item.keys?.join()} ${index}`;
}

function makeChip({ item }) {
  if (item === undefined) return element("span", { class: "more" });
  return element("i", { "data-family": item.family ?? familyOf(item.request) });
}
