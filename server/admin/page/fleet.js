// The fleet, and what tickets pin of it.

import { bar, byId, h, Table, tagged } from "./dom.js";
import { count, none, percent } from "./format.js";

const bad = new Set(["down", "open", "quarantined"]);

function state(instance) {
  const kind = instance.state === "up" ? "hit" : bad.has(instance.state) ? "bad" : "miss";
  const words = tagged(instance.state, kind, instance.state.replace("_", " "));
  return instance.why ? h("div", {}, words, h("span", { class: "why" }, instance.why)) : words;
}

// shared is a share with its bar, and perhaps a mark on it.
function shared(share, kind, mark) {
  return h("span", {}, bar(share, kind, mark), percent(share));
}

const fleetColumns = [
  { head: "Instance", text: (i) => i.name },
  { head: "Role", text: (i) => (i.rank === undefined ? i.role : `${i.role}, rank ${i.rank}`) },
  { head: "State", key: (i) => i.state + (i.why ?? ""), make: state },
  { head: "In flight", class: "number", text: (i) => count(i.in_flight) },
  { head: "Of others", class: "number", text: (i) => count(i.others) },
  { head: "Running", class: "number", text: (i) => count(i.running) },
  { head: "Waiting", class: "number", text: (i) => count(i.waiting) },
  {
    head: "KV cache in use", class: "number", key: (i) => i.kv_usage,
    make: (i) => (i.kv_usage === undefined ? none : shared(i.kv_usage, "")),
  },
  { head: "µs per token", class: "number", text: (i) => (i.us_per_prompt_token ? i.us_per_prompt_token.toFixed(0) : none) },
  { head: "Started", class: "code", text: (i) => started(i.incarnation) },
  { head: "Models", class: "wide", text: (i) => i.models?.join(", ") ?? none },
];

// started is when an engine was started, which its incarnation names in seconds. It is the engine's word: not every number is a date.
function started(incarnation) {
  const date = new Date(Number(incarnation) * 1000);
  if (!incarnation || Number.isNaN(date.getTime())) {
    return incarnation || "not known";
  }
  return date.toISOString().slice(0, 19).replace("T", " ");
}

const pinnedColumns = [
  { head: "Instance", text: (i) => i.name },
  {
    head: "Of the cache", class: "number", key: (i) => [i.pinned_tokens, i.budget_tokens, i.kv_tokens].join(),
    make: (i) => (i.kv_tokens ? shared(i.pinned_tokens / i.kv_tokens, "hit", i.budget_tokens ? i.budget_tokens / i.kv_tokens : undefined) : none),
  },
  { head: "Pinned", class: "number", text: (i) => count(i.pinned_tokens) },
  { head: "Budget", class: "number", text: (i) => (i.budget_tokens ? count(i.budget_tokens) : none) },
  { head: "Capacity", class: "number", text: (i) => (i.kv_tokens ? count(i.kv_tokens) : none) },
];

export class Fleet {
  constructor() {
    this.fleet = new Table(byId("fleet-table"), fleetColumns);
    this.pinned = new Table(byId("pinned-table"), pinnedColumns);
  }

  show(snapshot) {
    const key = (i) => [i.role, i.name, i.url, i.rank ?? ""].join("\n");
    this.fleet.show(snapshot.instances, key);
    this.pinned.show(snapshot.instances.filter((i) => i.role === "decode"), key);
  }
}
