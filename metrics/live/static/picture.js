// The picture: the rooms that a request passes, as threads, queues and chips. A chip is one request.

import { element, say, set, style, sync } from "./dom.js";
import { FAMILIES, familyOf, keyOf } from "./families.js";
import { count, duration, percent, rate, whole } from "./format.js";
import { Flow } from "./flow.js";

const CHIPS = 48;
const OLD_MS = 2000; // an operation that waits longer stands out, unless it waits on purpose
const ON_PURPOSE = new Set(["fetch", "fetch consumer"]);

const ROOMS = {
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
    this.rooms = {};
    set(section, "data-role", role);
    const grid = element("div", { class: "rooms" });
    for (const [name, title, panel] of ROOMS[role]) {
      const figure = element("span", { class: "figure" });
      const heading = element("h2", {}, element("a", { href: panel }, title));
      const body = element("div", { class: "body" });
      const article = element(
        "article",
        { class: "room", "data-room": name },
        element("header", {}, heading, figure),
        body,
      );
      this.rooms[name] = { article, figure, body };
      grid.append(article);
    }
    section.replaceChildren(grid);
    this.flow = new Flow(grid, this.rooms, role);
  }

  /** Show an answer; `rates` are requests a second by family, or null. */
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
    const { body, figure } = this.rooms.clients;
    const connections = live.acceptors.reduce((sum, acceptor) => sum + acceptor.connections, 0);
    say(figure, count(connections, "connection"));
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
          `${acceptor.listener} accepts on port ${acceptor.port} and hands connections to the processors`,
        );
      },
    );
    const told = Object.entries(FAMILIES).filter(
      ([family]) => rates !== null && (rates[family] > 0 || SHOWN[live.node.role].includes(family)),
    );
    sync(
      legend,
      told,
      ([family]) => family,
      makeLegend,
      (child, [family, name]) => {
        say(child.children[1], name);
        say(child.children[2], `${rate(rates[family])} /s`);
      },
    );
  }

  showProcessors(live) {
    const { article, body, figure } = this.rooms.processors;
    const [list] = parts(body, ["ul", "threads"]);
    const blocked = live.processors.some((processor) => processor.state === "waiting_for_room");
    set(article, "data-mood", blocked ? "warn" : null);
    const idle = live.processors.reduce((sum, processor) => sum + processor.idle, 0) / live.processors.length;
    say(figure, `${percent(idle)} idle`);
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
    const { article, body, figure } = this.rooms.queue;
    const [fill, chips] = parts(body, ["div", "fill"], ["div", "chips"]);
    if (!fill.firstChild) fill.append(element("i"));
    const share = queue.capacity > 0 ? queue.total / queue.capacity : 0;
    const mood = share >= 0.8 || queue.blocked_processors > 0 ? "warn" : null;
    set(article, "data-mood", mood);
    set(fill, "data-mood", mood);
    style(fill, "--share", `${Math.min(100, share * 100)}%`);
    say(figure, `${whole(queue.total)} of ${whole(queue.capacity)}`);
    showChips(
      chips,
      queue.items.map((request) => ({ request })),
      queue.total,
    );
  }

  showHandlers(live) {
    const { body, figure } = this.rooms.handlers;
    const [list, more] = parts(body, ["ul", "threads"], ["p", "soft"]);
    say(figure, `${percent(live.handlers.idle)} idle`);
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
    say(more, live.handlers.total > shown.length ? `and ${live.handlers.total - shown.length} more` : "");
  }

  showPurgatories(live) {
    const { article, body, figure } = this.rooms.purgatories;
    const [list] = parts(body, ["ul", "waits"]);
    const rooms = live.purgatories.map((room) => ({
      name: room.name,
      total: room.delayed,
      items: room.items,
    }));
    rooms.push({ name: "elsewhere", total: live.elsewhere.total, items: live.elsewhere.items });
    const old = rooms.flatMap((room) => room.items).filter(isOld).length;
    set(article, "data-mood", old > 0 ? "warn" : null);
    say(figure, `${whole(rooms.reduce((sum, room) => sum + room.total, 0))} wait`);
    sync(
      list,
      rooms,
      (room) => room.name,
      makeRoom,
      (child, room) => {
        const [name, total] = child.firstElementChild.children;
        say(name, ROOM_NAMES[room.name] ?? room.name);
        say(total, whole(room.total));
        child.lastElementChild.hidden = room.total === 0 && !BUSY_ROOMS.has(room.name);
        showChips(child.lastElementChild, room.items, room.total, 20);
      },
    );
  }

  showResponses(live) {
    const { body, figure } = this.rooms.responses;
    const [list] = parts(body, ["ul", "threads"]);
    const waiting = (p) => p.response_queue.total + p.sending.total;
    say(figure, `${whole(live.processors.reduce((sum, p) => sum + waiting(p), 0))} on their way out`);
    sync(
      list,
      live.processors,
      (p) => p.id,
      makeResponses,
      (child, processor) => {
        say(child.firstElementChild, `processor ${processor.id}`);
        const requests = [...processor.response_queue.items, ...processor.sending.items].map((request) => ({
          request,
        }));
        showChips(child.lastElementChild, requests, waiting(processor), 12);
      },
    );
  }

  showController(live) {
    const { body, figure } = this.rooms.events;
    const [fill, chips, doing] = parts(body, ["div", "fill"], ["div", "chips"], ["p", "soft"]);
    if (!fill.firstChild) fill.append(element("i"));
    style(fill, "--share", `${(1 - live.events.idle) * 100}%`);
    say(figure, `${percent(live.events.idle)} idle`);
    showChips(
      chips,
      live.events.items.map((event, index) => ({ key: index, family: "control", ...event })),
      live.events.total,
    );
    const waiting = live.events.total > 0 ? `; ${whole(live.events.total)} wait` : "";
    say(
      doing,
      (live.events.deciding === null ? "sleeps until something happens" : `decides ${live.events.deciding}`) +
        waiting,
    );
    const senders = this.rooms.senders;
    const [list] = parts(senders.body, ["ul", "threads"]);
    say(senders.figure, `${whole(live.brokers.reduce((sum, broker) => sum + broker.push_queue, 0))} to push`);
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

// In the legend also while there are none.
const SHOWN = { broker: ["produce", "consume", "follow"], controller: ["control"] };
// These keep their place while they are empty, so that the picture does not jump.
const BUSY_ROOMS = new Set(["Produce", "Fetch", "elsewhere"]);
const ROOM_NAMES = {
  elsewhere: "With a coordinator",
  topic: "Topics (controller)",
  DeleteRecords: "Delete records",
};

/** The parts of a room's body, made once. */
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
  say(child.children[1], name);
  say(child.children[2], what);
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

function makeRoom() {
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

/** One chip for each request, at most so many; the rest is a number. */
function showChips(parent, waiting, total, most = CHIPS) {
  const shown = waiting.slice(0, most).map((item, index) => ({ item, index }));
  if (total > shown.length) shown.push({ rest: total - shown.length });
  sync(parent, shown, chipKey, makeChip, (chip, { item, rest }) => {
    if (item === undefined) say(chip, `+${whole(rest)}`);
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
