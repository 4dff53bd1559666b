// The panel "Waiting": each operation that waits, what for, and how far that is.

import { element, say, set, style, sync } from "./dom.js";
import { familyOf, keyOf } from "./families.js";
import { count, duration, listed, whole } from "./format.js";
import { isOld } from "./picture.js";

const ROOMS = {
  Produce: ["Produce purgatory", "acks=all: answered when every in-sync replica has the records"],
  DeleteRecords: ["Delete records purgatory", "answered when every live replica has deleted as far"],
  topic: ["Topic purgatory", "answered when the controller has decided, and this broker has heard of it"],
  elsewhere: [
    "With a coordinator",
    "members of groups, commits, transactions: answered by their coordinator, or by another broker",
  ],
  Fetch: [
    "Fetch purgatory",
    "long polls: consumers and replicas wait here for new records, which is how they are meant to wait",
  ],
};

/** Make the panel; returns what shows an answer in it. */
export function waitingPanel(panel) {
  const blocks = element("div");
  const nobody = element("p", { class: "none" });
  panel.append(blocks, nobody);
  return (live) => {
    const rooms = live.purgatories.map((room) => ({ ...room, total: room.delayed }));
    rooms.push({ name: "elsewhere", ...live.elsewhere });
    const order = Object.keys(ROOMS);
    rooms.sort((one, two) => order.indexOf(one.name) - order.indexOf(two.name));
    const [inhabited, empty] = [
      rooms.filter((room) => room.total > 0),
      rooms.filter((room) => room.total === 0),
    ];
    sync(blocks, inhabited, (room) => room.name, makeRoom, showRoom);
    say(
      nobody,
      empty.length > 0
        ? `Nobody waits here: ${listed(empty.map((room) => ROOMS[room.name]?.[0] ?? room.name))}.`
        : "",
    );
  };
}

/** How many wait longer than they should. */
export function oldCount(live) {
  return [...live.purgatories, live.elsewhere].flatMap((room) => room.items).filter(isOld).length;
}

function makeRoom(room) {
  const [title, meaning] = ROOMS[room.name] ?? [room.name, ""];
  const heading = element("h2", {}, title, element("span", { class: "badge" }));
  return element(
    "section",
    { class: "block" },
    heading,
    element("p", { class: "soft" }, meaning),
    element("ul", { class: "waiting" }),
    element("p", { class: "none" }),
  );
}

function showRoom(block, room) {
  const [heading, , list, rest] = block.children;
  const badge = heading.lastElementChild;
  say(badge, whole(room.total));
  set(badge, "data-mood", room.items.some(isOld) ? "warn" : null);
  sync(list, room.items, waitingKey, makeItem, showItem);
  const hidden = Math.max(0, room.total - room.items.length);
  say(rest, hidden > 0 ? `and ${whole(hidden)} more` : "");
}

function waitingKey(item) {
  return item.request === null ? `${item.keys.join()} ${item.sentence}` : keyOf(item.request);
}

function makeItem(item) {
  const family = familyOf(item.request);
  const dot = element("i", { class: "dot", "data-family": family, "aria-hidden": "true" });
  return element(
    "li",
    {},
    element("span", { class: "age" }),
    dot,
    element("p", { class: "sentence" }),
    element("span", { class: "deadline" }),
    element("ul", { class: "lag" }),
  );
}

function showItem(child, item) {
  const [age, , sentence, deadline, lag] = child.children;
  say(age, duration(item.age_ms));
  set(age, "data-mood", isOld(item) ? "warn" : null);
  say(sentence, `${item.sentence[0].toUpperCase()}${item.sentence.slice(1)}.`);
  say(deadline, item.deadline_ms === null ? "" : `times out in ${duration(item.deadline_ms)}`);
  const replicas = item.reasons
    .filter((reason) => reason.kind === "replica" && reason.replica_offset >= 0)
    .slice(0, 3);
  sync(lag, replicas, (reason) => `${reason.topic} ${reason.partition} ${reason.replica}`, makeLag, showLag);
}

function makeLag() {
  return element(
    "li",
    {},
    element("span"),
    element("span", { class: "fill", "aria-hidden": "true" }, element("i")),
    element("span"),
  );
}

/** How far the replica has come: the bar is the last part of the log before what is waited for. */
function showLag(child, reason) {
  const missing = reason.offset - reason.replica_offset;
  const window = Math.max(10, missing * 2);
  say(child.children[0], `on replica ${reason.replica}`);
  style(child.children[1], "--share", `${Math.max(0, 1 - missing / window) * 100}%`);
  say(
    child.children[2],
    `${whole(reason.replica_offset)} of ${whole(reason.offset)}: ${count(missing, "record")} to go`,
  );
}
