// The record of a turn in full.

import { h } from "./dom.js";
import { count, milliseconds } from "./format.js";

const date = (text) => new Date(text).toISOString().replace("T", " ");

// The members of a record, in the order in which they are shown.
const fields = [
  ["turn", "Turn"], ["trace", "Trace"], ["began", "Began", date], ["conversation", "Conversation"], ["id_source", "Found in"],
  ["endpoint", "Endpoint"], ["model", "Model"], ["follow_up", "Follow-up", (is) => (is ? "yes" : "no")],
  ["path", "Path"], ["path_reason", "Why this path"], ["prefill", "Prefill"], ["decode", "Decode"], ["retries", "Retries", count],
  ["outcome", "Outcome"], ["reason", "Reason"], ["hint", "Meaning"], ["differs", "Differs at"], ["proof", "Proof"], ["tokens_offered", "Tokens offered", count],
  ["tokens_read", "Tokens read", count], ["tokens_confirmed", "Confirmed", count], ["stored", "Ticket kept"], ["stored_hint", "Why no ticket"], ["prompt_tokens", "Prompt tokens", count],
  ["completion_tokens", "Completion", count], ["finish", "Finish"], ["status", "Status", String], ["code", "Error"], ["blame", "Failed at"],
  ["kind", "Failure"], ["queue_ms", "Waited", milliseconds], ["lookup_ms", "Look-up", milliseconds], ["prefill_ms", "Prefill took", milliseconds],
  ["ttft_ms", "First token", milliseconds], ["duration_ms", "Took", milliseconds], ["saved_ms", "Prefill saved", milliseconds], ["answer_ms", "Whole answer", milliseconds],
];

// record lists the members of a record. Members that this page has no title for come last, under their own names.
export function record(turn) {
  const named = new Set(fields.map(([name]) => name));
  const others = Object.keys(turn).filter((name) => name !== "n" && !named.has(name)).map((name) => [name, name]);
  return h("dl", {}, ...[...fields, ...others].filter(([name]) => turn[name] !== undefined).map(([name, title, write]) =>
    h("div", {}, h("dt", {}, title), h("dd", {}, write ? write(turn[name]) : asText(turn[name])))));
}

function asText(value) {
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
