// Draining an instance, and taking it back. Each is asked about first.

import { byId, h, text } from "./dom.js";
import { ask } from "./token.js";

const ways = {
  drain: ["Drain", "It gets no new turns, and its open turns end as usual. Of a decode instance, what tickets pin is handed back or released. Replicas that share Redis all do so, until it is taken back; without Redis only this replica does, until it is restarted."],
  undrain: ["Take back", "It gets turns again, of all replicas that share Redis; without Redis of this one."],
};

// drainButton is the button of an instance: to drain it, or to take it back. One that was removed has none.
export function drainButton(instance) {
  if (instance.removed) {
    return h("span");
  }
  const way = instance.drained ? "undrain" : "drain";
  const button = h("button", { type: "button", "aria-label": `${ways[way][0]} ${instance.role} ${instance.name}` }, ways[way][0]);
  button.addEventListener("click", () => confirm(instance, way));
  return button;
}

function confirm(instance, way) {
  const [verb, note] = ways[way];
  text(byId("confirm-text"), `${verb} ${instance.role} ${instance.name}?`);
  text(byId("confirm-note"), note);
  text(byId("confirm-yes"), verb);
  byId("confirm-yes").onclick = () => send(instance, way);
  byId("confirm-no").onclick = () => byId("confirm").close();
  byId("confirm").showModal();
}

// send asks the listener, and closes the dialog if it agrees. Otherwise the dialog says why not.
async function send(instance, way) {
  byId("confirm-yes").disabled = true;
  let why = "The listener does not answer.";
  let where = "";
  try {
    const answer = await ask(`admin/instances/${instance.role}/${encodeURIComponent(instance.name)}/${way}`, { method: "POST" });
    const body = await answer.json().catch(() => ({}));
    where = body.shared ? "at all replicas" : "at this replica alone";
    why = answer.ok ? "" : body.error?.message ?? `The listener answers ${answer.status}.`;
  } catch {
    // why says it
  }
  byId("confirm-yes").disabled = false;
  if (why !== "") {
    text(byId("confirm-note"), why);
    return;
  }
  byId("confirm").close();
  text(byId("said"), `${instance.role} ${instance.name}: ${way === "drain" ? "drained" : "taken back"} ${where}`);
}
