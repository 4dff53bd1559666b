// The panel "Brokers" of a controller: the state of each broker, and the changes still to be pushed to it.

import { duration, percent, whole } from "./format.js";
import { block, showTable } from "./threads.js";

/** Make the panel; returns the function that shows an answer in it. */
export function brokersPanel(panel) {
  const brokers = block("Brokers", "registered with this controller");
  const events = block("Events", "processed one at a time by the event thread");
  const metadata = block("Metadata", "the content of the metadata log");
  panel.append(brokers.section, events.section, metadata.section);
  return (live) => {
    showTable(brokers, BROKER_COLUMNS, live.brokers, (b) => b.id, "", "No broker has registered.");
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
