// The panel "Brokers" of a controller: the state of each broker, the changes still to be pushed to it, and the quorum.

import { duration, percent, whole } from "./format.js";
import { block, showTable } from "./threads.js";

/** Make the panel; returns the function that shows an answer in it. */
export function brokersPanel(panel) {
  const brokers = block("Brokers", "registered with this controller");
  const events = block("Events", "processed one at a time by the event thread");
  const metadata = block("Metadata", "the content of the metadata log");
  const quorum = block("Quorum", "the controllers that elect the active one");
  const changes = block("Roles", "that this controller took, the newest first, and why");
  panel.append(brokers.section, quorum.section, changes.section, events.section, metadata.section);
  return (live) => {
    showTable(brokers, BROKER_COLUMNS, live.brokers, (b) => b.id, "", "No broker has registered.");
    showQuorum(quorum, changes, live);
    const items = live.events.items.map((event, index) => ({ ...event, index }));
    showTable(
      events,
      EVENT_COLUMNS,
      items,
      (e) => e.index,
      `${whole(live.events.processed)} so far, ${percent(live.events.idle)} idle`,
      "No event waits.",
    );
    showTable(metadata, METADATA_COLUMNS, Object.entries(live.metadata), ([name]) => name, "", "");
  };
}

function showQuorum(quorum, changes, live) {
  const { role, epoch, leader, voted, members } = live.quorum;
  const vote = voted === null ? "" : `, vote for ${voted}`;
  const state = `this is the ${role} in epoch ${epoch}, leader ${leader ?? "unknown"}${vote}`;
  showTable(quorum, MEMBER_COLUMNS, members, (m) => `${m.role} ${m.id}`, state, "");
  const items = live.quorum.changes.map((change) => ({ ...change, age_ms: Math.max(0, live.at_ms - change.at_ms) }));
  const keyed = items.map((change, index) => ({ ...change, key: items.length - index }));
  showTable(changes, CHANGE_COLUMNS, keyed, (c) => c.key, "", "A single controller is elected by nobody.");
}

const MEMBER_COLUMNS = [
  ["controller", (m) => `controller ${m.id}`],
  ["role", (m) => m.role],
  ["address", (m) => m.address || "–", "mono"],
  ["log end", (m) => (m.end_offset < 0 ? "–" : whole(m.end_offset)), "number"],
  ["behind", (m) => (m.behind < 0 ? "–" : whole(m.behind)), "number"],
  ["last fetch", (m) => (m.fetched_ms < 0 || m.role === "leader" ? "–" : `${duration(m.fetched_ms)} ago`), "number"],
  ["vote", (m) => m.vote ?? "–"],
];
const CHANGE_COLUMNS = [
  ["ago", (c) => duration(c.age_ms), "number"],
  ["role", (c) => c.role],
  ["epoch", (c) => whole(c.epoch), "number"],
  ["leader", (c) => (c.leader === null ? "–" : String(c.leader)), "number"],
  ["because", (c) => c.reason],
];
const BROKER_COLUMNS = [
  [
    "broker",
    (b) => `broker ${b.id}`,
    "",
    (b) => [b.state === "active" ? "working" : "waiting_for_room", null],
  ],
  ["state", (b) => b.state.replaceAll("_", " ")],
  ["address", (b) => b.address, "mono"],
  ["rack", (b) => b.rack ?? "–"],
  ["epoch", (b) => String(b.epoch), "number"],
  ["last heartbeat", (b) => `${duration(b.last_heartbeat_ms)} ago`, "number"],
  ["leads", (b) => whole(b.leads), "number"],
  ["replicas", (b) => whole(b.replicas), "number"],
  [
    "to push",
    (b) => (b.push_queue === 0 ? "–" : `${whole(b.push_queue)}, for ${duration(b.push_age_ms)}`),
    "number",
  ],
  ["behind", (b) => (b.metadata_lag === 0 ? "–" : whole(b.metadata_lag)), "number"],
];
const EVENT_COLUMNS = [
  ["event", (e) => e.name],
  ["waits for", (e) => duration(e.age_ms), "number"],
];
const METADATA_COLUMNS = [
  ["item", ([name]) => name.replaceAll("_", " ")],
  ["", ([, value]) => whole(value), "number"],
];
