// The panel "Threads": the present activity of each thread, and the content of each queue.

import { element, setText, set, sync } from "./dom.js";
import { familyOf, keyOf } from "./families.js";
import { bytes, duration, percent, whole } from "./format.js";

const REQUEST_COLUMNS = [
  ["request", (r) => `${r.api ?? "unreadable"} v${r.version}`],
  ["client", (r) => r.client_id ?? "–"],
  ["connection", (r) => r.connection, "mono"],
  ["size", (r) => bytes(r.size_bytes), "number"],
  ["age", (r) => duration(r.age_ms), "number"],
];

/** Make the panel; returns the function that shows an answer in it. */
export function threadsPanel(panel) {
  const queue = block("Request queue", "bounded: while it is full, processors wait, and so do clients");
  const handlers = block("Request handlers", "each takes the oldest request and handles it");
  const processors = block(
    "Network processors",
    "each reads requests from its own connections and writes their responses",
  );
  const responses = block(
    "Response queues",
    "responses that a processor has not taken or not sent completely yet",
  );
  const throttled = block(
    "Throttled clients",
    "each has used more than a quota allows: its connection is read again when its wait is over",
  );
  const accepting = block(
    "Acceptors",
    "each accepts connections and passes them to the processors of its listener",
  );
  panel.append(handlers.section, queue.section, processors.section, responses.section, throttled.section, accepting.section);
  return (live) => {
    const all = live.request_queue;
    showTable(
      queue,
      REQUEST_COLUMNS,
      all.items,
      keyOf,
      `${whole(all.total)} of ${whole(all.capacity)} places in use`,
      "No request waits for a handler.",
    );
    const { idle, items, sleeping, total } = live.handlers;
    const about = `${percent(idle)} idle in the last minute; ${sleeping} of ${total} asleep`;
    showTable(handlers, HANDLER_COLUMNS, items, (h) => h.id, about, "");
    showTable(processors, PROCESSOR_COLUMNS, live.processors, (p) => p.id, "", "");
    const answered = live.processors.flatMap((p) =>
      [...p.response_queue.items, ...p.sending.items].map((r) => ({ ...r, processor: p.id })),
    );
    showTable(responses, RESPONSE_COLUMNS, answered, keyOf, "", "No response waits.");
    const { items: waiting, total: waitingTotal } = live.throttled;
    showTable(
      throttled,
      THROTTLED_COLUMNS,
      waiting,
      (t) => t.connection,
      waitingTotal ? `${whole(waitingTotal)} now` : "",
      "No client waits.",
    );
    showTable(accepting, ACCEPTOR_COLUMNS, live.acceptors, (a) => a.listener, "", "");
  };
}

const HANDLER_COLUMNS = [
  ["thread", (h) => `handler ${h.id}`],
  ["activity", (h) => h.doing, "", (h) => [h.state, h.request === null ? null : familyOf(h.request)]],
  ["connection", (h) => h.request?.connection ?? "", "mono"],
  ["for", (h) => duration(h.since_ms), "number"],
];
const PROCESSOR_COLUMNS = [
  ["thread", (p) => `processor ${p.id} · ${p.listener}`],
  ["activity", (p) => p.doing, "", (p) => [p.state, null]],
  ["connections", (p) => whole(p.connections), "number"],
  ["in progress", (p) => whole(p.muted), "number"],
  ["response queue", (p) => whole(p.response_queue.total), "number"],
  ["requests so far", (p) => whole(p.requests), "number"],
  ["idle", (p) => percent(p.idle), "number"],
];
const RESPONSE_COLUMNS = [
  ["processor", (r) => `processor ${r.processor}`],
  ["state", (r) => (r.place === "sending" ? "being sent" : "queued")],
  ...REQUEST_COLUMNS,
];
const THROTTLED_COLUMNS = [
  ["client", (t) => [t.user, t.client_id].filter(Boolean).join(" · ") || t.principal],
  ["connection", (t) => t.connection, "mono"],
  ["goes on in", (t) => duration(t.left_ms), "number"],
  ["why", (t) => t.sentence],
];
const ACCEPTOR_COLUMNS = [
  ["listener", (a) => a.listener],
  ["security", (a) => a.security_protocol],
  ["port", (a) => String(a.port), "number"],
  ["processors", (a) => a.processors.join(", ")],
  ["connections", (a) => whole(a.connections), "number"],
  ["accepted so far", (a) => whole(a.connections_accepted), "number"],
];

/** A section with a heading, a line that explains it, and a table. */
export function block(title, meaning) {
  const note = element("p", { class: "soft" }, meaning);
  const table = element("table");
  const none = element("p", { class: "none" });
  return {
    section: element("section", { class: "block" }, element("h2", {}, title), note, table, none),
    note,
    table,
    none,
    meaning,
  };
}

/** Show rows in the table of a block; a column is [name, text of a row, class, lamp of a row]. */
export function showTable({ note, table, none, meaning }, columns, rows, keyOfRow, about, ifNone) {
  if (!table.tHead) {
    const cells = columns.map(([name, , kind = ""]) =>
      element("th", { scope: "col", class: kind === "number" ? kind : "" }, name),
    );
    table.append(element("thead", {}, element("tr", {}, ...cells)), element("tbody"));
  }
  table.hidden = rows.length === 0;
  setText(note, about ? `${meaning}; ${about}` : meaning);
  setText(none, rows.length === 0 ? ifNone : "");
  sync(
    table.tBodies[0],
    rows,
    keyOfRow,
    () => makeRow(columns),
    (row, item) => {
      columns.forEach(([, text, , lamp], index) => showCell(row.cells[index], text(item), lamp?.(item)));
    },
  );
}

function makeRow(columns) {
  const cells = columns.map(([name, , kind = "", lamp]) => {
    const cell = element("td", { class: kind, "data-name": name });
    const inner = element("span");
    if (lamp) inner.append(element("i", { class: "lamp", "aria-hidden": "true" }));
    inner.append(element("span"));
    cell.append(inner);
    return cell;
  });
  return element("tr", {}, ...cells);
}

function showCell(cell, text, lamp) {
  const inner = cell.firstElementChild;
  setText(inner.lastElementChild, text);
  if (lamp) {
    set(inner, "data-state", lamp[0]);
    set(inner, "data-family", lamp[1]);
  }
}
