// What has happened to this replica and its engines, newest first.

import { byId, h, Table, tagged } from "./dom.js";
import { count, date } from "./format.js";

const grave = new Set(["quarantine", "stop", "store"]);

const columns = [
  { head: "When", class: "code", title: "The last time, if it has happened several times, by the clock of this browser", key: (e) => e.at, make: (e) => h("time", { datetime: e.at }, date(e.at)) },
  { head: "Kind", title: "What the event is about", key: (e) => e.kind, make: (e) => tagged(e.kind, grave.has(e.kind) ? "miss" : "off", e.kind) },
  { head: "What", class: "wide", title: "What has happened", text: (e) => (e.times > 1 ? `${e.text} (${count(e.times)} times)` : e.text) },
];

export class Events {
  #table = new Table(byId("events-table"), columns);

  // show shows the events, if a snapshot has other ones than before.
  show({ events }) {
    if (events === undefined) {
      return;
    }
    byId("events-none").hidden = events.length > 0;
    byId("events-table").hidden = events.length === 0;
    this.#table.show(events, (e) => `${e.kind} ${e.text}`);
  }

  clear() {
    byId("events-none").hidden = false;
    byId("events-table").hidden = true;
    this.#table.show([], () => "");
  }
}
