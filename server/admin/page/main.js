// The page for operators: what the program does, as it does it.

import { byId, text } from "./dom.js";
import { span } from "./format.js";
import { Conversation } from "./conversation.js";
import { Events } from "./events.js";
import { Fleet } from "./fleet.js";
import { Hour } from "./hour.js";
import { Live } from "./live.js";
import { learn } from "./reasons.js";
import { Reuse } from "./reuse.js";
import { Search } from "./search.js";
import { Turns } from "./turns.js";
import { TTFT } from "./ttft.js";
import * as theme from "./theme.js";
import * as token from "./token.js";

const conversation = new Conversation();
const turns = new Turns((hash) => conversation.open(hash));
const reuse = new Reuse();
const events = new Events();
const hour = new Hour();
const parts = [reuse, hour, new Fleet(), new TTFT(), events, turns];
new Search((names) => turns.only(names), (hash) => conversation.open(hash));

let since; // of the program that is shown

function show(snapshot) {
  if (snapshot.program !== undefined) {
    learn(snapshot.program.reasons ?? {});
    text(byId("program"), [snapshot.program.version, snapshot.program.replica].filter(Boolean).join(" on "));
  }
  if (since !== snapshot.totals.since) { // another start of it, which counts anew
    since = snapshot.totals.since;
    turns.clear();
    reuse.history.clear();
    events.clear();
    hour.clear();
  }
  ready(snapshot.ready ?? "ready", snapshot.why);
  for (const part of parts) {
    part.show(snapshot);
  }
  text(byId("uptime"), `since ${new Date(since).toISOString().slice(0, 19).replace("T", " ")} UTC, for ${span(Date.parse(snapshot.now) - Date.parse(since))}`);
}

// Words of readiness that are no fault.
const fine = { ready: "", decode_only: "decode alone" };

// ready says in the header why no turns are served, or not as they should be.
function ready(word, why) {
  const words = fine[word] ?? "not ready";
  byId("readiness").dataset.ready = fine[word] === undefined ? "no" : "yes";
  text(byId("readiness"), words === "" ? "" : `${words}: ${why ?? word}`);
}

// What is told of the connection, with a glyph.
const states = {
  connecting: ["○", "connecting"],
  live: ["●", "live"],
  lost: ["✕", "no connection; what is shown is from before"],
  full: ["○", "too many look on; this page waits for a place"],
  token: ["○", "the token is needed"],
  refused: ["✕", "refused"],
  paused: ["‖", "paused"],
};

let state = "connecting";

function tell(next, why) {
  state = next;
  const [glyph, words] = states[state];
  byId("status").dataset.state = state;
  text(byId("status").querySelector(".glyph"), glyph);
  text(byId("status-text"), why ? `${words}: ${why}` : words);
  if (state === "token") {
    byId("token-form").hidden = false;
    byId("token").focus();
  } else if (state === "live") {
    byId("token-form").hidden = true;
  }
}

const live = new Live(show, tell);

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.keep(byId("token").value.trim());
  byId("token").value = "";
  live.start();
});

byId("pause").addEventListener("click", () => {
  const paused = byId("pause").getAttribute("aria-pressed") !== "true";
  byId("pause").setAttribute("aria-pressed", String(paused));
  if (paused) {
    live.stop("paused");
  } else {
    live.start();
  }
});

byId("theme").value = theme.chosen();
byId("theme").addEventListener("change", () => theme.choose(byId("theme").value));

// Nobody looks at a page that is hidden; its place is for others.
document.addEventListener("visibilitychange", () => {
  if (state === "paused" || state === "token") {
    return;
  }
  if (document.hidden) {
    live.stop();
  } else {
    live.start();
  }
});

live.start();
