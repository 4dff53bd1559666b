// The panel "Partitions": the log of each replica as a lane. The lane slides as records arrive and ends at the leader's end.

import { element, setText, set, style, sync } from "./dom.js";
import { bytes, count, duration, whole } from "./format.js";

const WINDOW_MIN = 40; // a lane shows at least so many records
const SILENT_MS = 1500; // a follower that lags fetches more often than this

/** Make the panel; another chosen topic calls `asked`. Returns the function that shows an answer, and the topic. */
export function partitionsPanel(panel, asked) {
  const input = element("input", {
    type: "search",
    list: "topics",
    autocomplete: "off",
    placeholder: "all topics",
  });
  const topics = element("datalist", { id: "topics" });
  const note = element("span", { class: "soft" });
  const key = element(
    "p",
    { class: "key" },
    keyItem("leader's log", "--family-produce"),
    keyItem("follower's log", "--family-consume"),
    keyItem("behind", "--bad"),
    element(
      "span",
      {},
      element("i", { class: "line" }),
      "high watermark: every in-sync replica has all records before it",
    ),
  );
  style(key.lastElementChild.firstElementChild, "--colour", "var(--ink)");
  const list = element("ul", { class: "partitions" });
  const internal = element("input", { type: "checkbox" });
  panel.append(
    element(
      "div",
      { class: "bar" },
      element("label", {}, "Topic", input),
      element("label", {}, internal, "internal topics"),
      topics,
      note,
      key,
    ),
    list,
  );
  let timer = null;
  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(asked, 250);
  });
  internal.addEventListener("change", asked);
  const seen = new Set();
  const show = (live) => {
    const { total } = live.partitions;
    const isShown = (p) =>
      internal.checked ||
      input.value !== "" ||
      !p.topic.startsWith("__") ||
      p.isr.length < p.replica_ids.length;
    const items = live.partitions.items.filter(isShown);
    setText(
      note,
      total > items.length
        ? `${whole(items.length)} of ${count(total, "partition")}`
        : count(total, "partition"),
    );
    for (const item of live.partitions.items) {
      if (seen.size < 500 && !seen.has(item.topic)) {
        seen.add(item.topic);
        topics.append(element("option", { value: item.topic }));
      }
    }
    sync(list, items, (p) => `${p.topic} ${p.partition}`, makePartition, showPartition);
  };
  return { show, topic: () => input.value.trim() };
}

function keyItem(name, colour) {
  const sample = element("i");
  style(sample, "--colour", `var(${colour})`);
  return element("span", {}, sample, name);
}

function makePartition(item) {
  const header = element(
    "header",
    {},
    element("h3", {}, `${item.topic}-${item.partition}`),
    element("span", { class: "soft" }),
  );
  return element(
    "li",
    { class: "partition" },
    header,
    element("p", { class: "facts" }),
    element("ul", { class: "lanes" }),
  );
}

function showPartition(child, item) {
  const [header, facts, lanes] = child.children;
  const missing = item.replica_ids.length - item.isr.length;
  set(child, "data-mood", missing > 0 ? "warn" : null);
  setText(
    header.lastElementChild,
    item.role === "leader"
      ? `leads in epoch ${item.leader_epoch}`
      : item.leader < 0
        ? "has no leader"
        : `follows ${item.leader}, epoch ${item.leader_epoch}`,
  );
  const numbers = [
    ["LEO", whole(item.log_end_offset)],
    ["HW", whole(item.high_watermark)],
    ["LSO", whole(item.last_stable_offset)],
    ["ISR", item.isr.join(", ") || "–"],
    ["size", bytes(item.size_bytes)],
  ];
  sync(
    facts,
    numbers,
    ([name]) => name,
    ([name]) => element("span", {}, `${name} `, element("b")),
    (fact, [, value]) => setText(fact.lastElementChild, value),
  );
  sync(lanes, lanesOf(item), (lane) => lane.broker, makeLane, showLane);
}

/** The lanes. All show the same part of the log: the last records before the leader's end. */
function lanesOf(item) {
  const end = item.log_end_offset;
  const replicas =
    item.role === "leader"
      ? item.replicas
      : [
          {
            broker: "here",
            log_start_offset: item.log_start_offset,
            log_end_offset: end,
            lag: item.fetch_lag ?? 0,
            is_in_sync: true,
            is_alive: true,
            last_fetch_ms: -1,
          },
        ];
  const lowest = Math.min(
    end,
    item.high_watermark,
    ...replicas.map((r) => (r.log_end_offset < 0 ? end : r.log_end_offset)),
  );
  const window = niceWindow(Math.max(WINDOW_MIN, (end - lowest) * 1.25));
  return replicas.map((replica) => ({ ...replica, end, window, high_watermark: item.high_watermark }));
}

/** 1, 2, 4 or 5 times a power of ten, so that the window rarely changes. */
function niceWindow(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 4, 5, 10].map((factor) => factor * power).find((size) => size >= least);
}

function makeLane() {
  const lane = element(
    "div",
    { class: "lane", "aria-hidden": "true" },
    element("i", { class: "have" }),
    element("i", { class: "grid" }),
    element("i", { class: "mark" }),
  );
  return element(
    "li",
    {},
    element("span", { class: "name" }, element("span"), element("em")),
    lane,
    element("span", { class: "end" }),
  );
}

function showLane(child, replica) {
  const [name, lane, end] = child.children;
  const start = replica.end - replica.window;
  const share = (offset) => `${Math.max(0, Math.min(1, (offset - start) / replica.window)) * 100}%`;
  const isSilent = replica.last_fetch_ms > SILENT_MS || replica.log_end_offset < 0;
  const isLate =
    !replica.is_leader && (!replica.is_in_sync || !replica.is_alive || (replica.lag > 0 && isSilent));
  setText(name.firstElementChild, replica.broker === "here" ? "here" : `replica ${replica.broker}`);
  setText(name.lastElementChild, replica.is_alive ? (replica.is_in_sync ? "" : " out") : " dead");
  set(lane, "data-role", replica.is_leader ? "leader" : isLate ? "late" : "follower");
  const has = Math.max(replica.log_end_offset, 0); // unknown before its first fetch
  style(lane, "--begin", share(Math.max(0, Math.min(replica.log_start_offset, has))));
  style(lane, "--end", share(has));
  style(lane, "--mark", share(replica.high_watermark));
  // Lines at each tenth of the window, fixed to offsets: they slide to the left as the log grows.
  style(lane, "--step", "10%");
  const step = replica.window / 10;
  style(lane, "--shift", `${-((start % step) / step) * 11.1}%`);
  setText(end, endOf(replica));
}

function endOf(replica) {
  if (replica.log_end_offset < 0) return "not fetched yet";
  if (replica.is_leader) return "leader";
  if (replica.lag > 0) return `${whole(replica.lag)} behind`;
  return replica.last_fetch_ms > SILENT_MS ? `fetched ${duration(replica.last_fetch_ms)} ago` : "caught up";
}
