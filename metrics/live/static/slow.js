// The panel "Slow requests": the slowest of the last minutes, and the six times of one as a stacked bar.

import { element, setText, set, style, sync } from "./dom.js";
import { familyOfApi, keyOf } from "./families.js";
import { bytes, duration, percent } from "./format.js";
import { block, showTable } from "./threads.js";

const STATIONS = {
  request_queue: ["Request queue", "until a handler took it"],
  local: ["Local", "while a handler decoded it, wrote or read the log"],
  remote: ["Remote", "while it waited for others, such as replicas, members or new records"],
  throttle: ["Throttle", "while a quota held its connection back"],
  response_queue: ["Response queue", "until its processor took the response"],
  send: ["Send", "until the kernel had the last byte"],
};
const SHOWN = 18;
const ERROR_COLUMNS = [
  ["request", (failed) => `${failed.api} v${failed.version}`],
  ["client", (failed) => failed.client_id ?? "–"],
  ["errors", (failed) => failed.errors.join(", ")],
  ["connection", (failed) => failed.connection, "mono"],
  ["correlation id", (failed) => String(failed.correlation_id), "number"],
];

/** Make the panel; returns the function that shows an answer in it. */
export function slowPanel(panel) {
  const list = element("ul", { class: "slow" });
  const none = element("p", { class: "none" }, "No request yet.");
  const listBlock = element(
    "section",
    { class: "block" },
    element("h2", {}, "The slowest requests"),
    element(
      "p",
      { class: "soft" },
      "of the last five minutes, without the intended waits of fetches and members",
    ),
    none,
    list,
  );
  const timeline = timelineBlock();
  const errors = block(
    "Responses with errors",
    "the last ones, newest first, without errors that are part of a normal protocol step",
  );
  errors.section.classList.add("after");
  panel.append(element("div", { class: "columns" }, listBlock, timeline.section), errors.section);
  let chosen = null; // the request that is shown; it stays when it is no longer among the slowest
  let last = [];
  const choose = (key) => {
    chosen = last.find((request) => keyOf(request) === key) ?? chosen;
    show();
  };
  const show = () => {
    none.hidden = last.length > 0;
    sync(
      list,
      last,
      keyOf,
      (request) => makeChoice(request, choose),
      (child, request) => {
        set(
          child.firstElementChild,
          "aria-pressed",
          String(chosen !== null && keyOf(request) === keyOf(chosen)),
        );
      },
    );
    timeline.show(chosen);
  };
  return (live) => {
    const failed = live.requests.errors.map((each) => ({ ...each, key: keyOf(each) }));
    showTable(errors, ERROR_COLUMNS, failed, (each) => each.key, "", "None so far.");
    last = live.requests.slow.slice(0, SHOWN);
    chosen ??= last[0] ?? null;
    chosen = last.find((request) => chosen !== null && keyOf(request) === keyOf(chosen)) ?? chosen;
    show();
  };
}

function makeChoice(request, choose) {
  const dot = element("i", { class: "dot", "data-family": familyOfApi(request.api), "aria-hidden": "true" });
  const name = element(
    "span",
    {},
    `${request.api} `,
    element("span", { class: "soft" }, request.client_id ?? "no name"),
  );
  const stack = makeStack();
  showStack(stack, request);
  const button = element(
    "button",
    { type: "button", "aria-pressed": "false" },
    dot,
    name,
    element("span", { class: "total" }, duration(request.total_ms)),
    stack,
  );
  button.addEventListener("click", () => choose(keyOf(request)));
  return element("li", {}, button);
}

function timelineBlock() {
  const title = element("h2");
  const facts = element("p", { class: "facts" });
  const stack = makeStack();
  const stations = element("ol", { class: "stations" });
  for (const [station, [name, meaning]] of Object.entries(STATIONS)) {
    stations.append(
      element(
        "li",
        { "data-station": station },
        element("i", { "aria-hidden": "true" }),
        element("b", {}, name),
        element("span", { class: "number" }),
        element("span", { class: "number soft" }),
        element("span", { class: "soft" }, meaning),
      ),
    );
  }
  const section = element(
    "section",
    { class: "block", "aria-label": "The six times of one request" },
    title,
    facts,
    stack,
    stations,
  );
  return { section, show: (request) => showTimeline({ section, title, facts, stack, stations }, request) };
}

function showTimeline({ section, title, facts, stack, stations }, request) {
  section.hidden = request === null;
  if (request === null) return;
  setText(title, `${request.api} v${request.version}: ${duration(request.total_ms)}`);
  const shown = [
    ["client", request.client_id ?? "no name"],
    ["correlation id", String(request.correlation_id)],
    ["connection", request.connection],
    ["size", bytes(request.size_bytes)],
    ["answered", `${duration(request.age_ms)} ago`],
  ];
  sync(
    facts,
    shown,
    ([name]) => name,
    ([name]) => element("span", {}, `${name} `, element("b")),
    (child, [, value]) => setText(child.lastElementChild, value),
  );
  showStack(stack, request);
  for (const row of stations.children) {
    const ms = request.times_ms[row.dataset.station] ?? 0;
    setText(row.children[2], duration(ms));
    setText(row.children[3], percent(request.total_ms > 0 ? ms / request.total_ms : 0));
  }
}

function makeStack() {
  const pieces = Object.keys(STATIONS).map((station) => element("i", { "data-station": station }));
  return element("div", { class: "stack", "aria-hidden": "true" }, ...pieces);
}

/** The pieces get their percentages: milliseconds would leave the bar partly empty if they add up to less than 1. */
function showStack(stack, request) {
  const msOf = (piece) => request.times_ms[piece.dataset.station] ?? 0;
  const pieces = [...stack.children];
  const totalMs = pieces.reduce((sum, piece) => sum + msOf(piece), 0);
  for (const piece of pieces) style(piece, "--share", totalMs > 0 ? (100 * msOf(piece)) / totalMs : 0);
}
