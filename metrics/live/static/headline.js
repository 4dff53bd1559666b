// The sentence on top: the state of the process, and if something is stuck, what waits for what.

import { count, duration, listed, rate } from "./format.js";
import { isOld } from "./picture.js";

/** The sentence and its mood: "" (all is well), "warn" or "bad". */
export function headline(live, rates) {
  const moved = live.clock_offset_ms > 0 ? ` The clock was moved ${duration(live.clock_offset_ms)} ahead.` : "";
  const troubles = live.node.role === "broker" ? ofBroker(live) : ofController(live);
  if (troubles.length > 0) {
    const others = troubles.length > 1 ? ` (and ${count(troubles.length - 1, "other thing")})` : "";
    return { text: `${sentence(troubles[0])}${others}.${moved}`, mood: "warn" };
  }
  if (!["running", "serving"].includes(live.node.state))
    return { text: `This ${live.node.role} is ${live.node.state.replaceAll("_", " ")}.`, mood: "bad" };
  const total = rates === null ? null : Object.values(rates).reduce((sum, each) => sum + each, 0);
  const pace = total === null ? "" : ` ${rate(total)} requests per second.`;
  return { text: `All is well: nothing waits longer than expected.${pace}${moved}`, mood: "" };
}

function ofBroker(live) {
  const queue = live.request_queue;
  const troubles = [];
  if (queue.blocked_processors > 0) {
    const who = count(queue.blocked_processors, "processor waits", "processors wait");
    troubles.push(`the request queue is full: ${who} for space, and so do their clients`);
  }
  troubles.push(...behindReplicas(live));
  const others = [...live.purgatories, live.elsewhere]
    .flatMap((place) => place.items)
    .filter((item) => isOld(item) && !waitsForReplica(item));
  if (others.length > 0) {
    const longest = others.reduce((one, two) => (one.age_ms > two.age_ms ? one : two));
    troubles.push(`for ${duration(longest.age_ms)}, ${longest.sentence}`);
  }
  const lacking = live.partitions.items.filter(
    (p) => p.role === "leader" && p.isr.length < p.replica_ids.length,
  );
  if (lacking.length > 0) {
    const out = [
      ...new Set(lacking.flatMap((p) => p.replica_ids.filter((id) => !p.isr.includes(id)))),
    ].sort();
    const those = count(lacking.length, "partition is", "partitions are");
    const who = listed(out.map((id) => `replica ${id}`));
    troubles.push(`${those} under-replicated: ${who} ${out.length === 1 ? "is" : "are"} out of sync`);
  }
  return troubles;
}

function waitsForReplica(item) {
  return item.reasons.some((reason) => reason.kind === "replica");
}

/** The replicas that keep produce requests waiting, one sentence each. */
function behindReplicas(live) {
  const waiting = new Map(); // by replica: how many wait, how long ago it fetched
  for (const item of live.purgatories.flatMap((place) => place.items).filter(isOld)) {
    for (const reason of item.reasons.filter((each) => each.kind === "replica")) {
      const known = waiting.get(reason.replica) ?? { items: new Set(), last_fetch_ms: reason.last_fetch_ms };
      known.items.add(item);
      waiting.set(reason.replica, known);
    }
  }
  return [...waiting].map(([replica, { items, last_fetch_ms }]) => {
    const since =
      last_fetch_ms < 0 ? "which has not fetched yet" : `which last fetched ${duration(last_fetch_ms)} ago`;
    const [one, many] = [...items].every((item) => item.operation === "produce")
      ? ["produce waits", "produces wait"]
      : ["append waits", "appends wait"];
    return `${count(items.size, one, many)} for replica ${replica}, ${since}`;
  });
}

function ofController(live) {
  const troubles = live.brokers
    .filter((b) => b.state === "fenced")
    .map((b) => `broker ${b.id} is fenced: its last heartbeat came ${duration(b.last_heartbeat_ms)} ago`);
  troubles.unshift(...ofQuorum(live.quorum));
  if (live.metadata.offline > 0)
    troubles.unshift(`${count(live.metadata.offline, "partition has", "partitions have")} no leader`);
  return troubles;
}

const SILENT_MS = 3000; // a leader without fetches of a majority gives up after that time, by default

function ofQuorum({ role, leader, members }) {
  if (leader === null) return ["no leader of the quorum is known: nothing is decided"];
  if (role !== "leader") return [];
  return members
    .filter((m) => m.role === "voter" && (m.fetched_ms < 0 || m.fetched_ms > SILENT_MS))
    .map((m) => `controller ${m.id} votes, and does not fetch from this leader`);
}

function sentence(text) {
  return text[0].toUpperCase() + text.slice(1);
}
