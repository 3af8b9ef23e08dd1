package explain

import "carryover/upstream/fleet/pairs"

// Explanation predicts what would become of a request now, and why, from what is known without asking an engine. It repeats nothing of the
// request except the model's name and what an error would tell the client. The JSON names of its members are stable.
type Explanation struct {
	// Verdict is the X-KV-Reuse that the turn would show, except what only the turn itself can show: confirmed, and prefix, which stands
	// here as the miss that it would be if prefill's own caches had nothing. It has three other values.
	// "tokens decide": only the ids of the prompt can tell, and prefill's /tokenize would be asked for them. "engines decide": an engine has
	// to be asked for something else, or the turn would wait for one. "refused": the client would get Error.
	Verdict  string `json:"verdict"`
	Sentence string `json:"sentence"`
	Hint     string `json:"hint,omitempty"` // of a miss: what happened and what can be done

	Error        *Refusal      `json:"error,omitempty"`
	Endpoint     string        `json:"endpoint"`
	Model        string        `json:"model,omitempty"`
	Stream       bool          `json:"stream"`
	Conversation Identified    `json:"conversation"`
	Proof        ProofInForce  `json:"proof"`
	Queue        QueueNow      `json:"queue"`
	Path         *PathAhead    `json:"path,omitempty"`
	Prefill      *EngineAhead  `json:"prefill,omitempty"`
	Decode       *EngineAhead  `json:"decode,omitempty"`
	Pair         string        `json:"pair,omitempty"`  // state of the pair of these two, as for tickets: "proven", "trial", "busy" or "stopped"
	Store        string        `json:"store,omitempty"` // what the look-up found, if one is made
	Tickets      []TicketAhead `json:"tickets"`         // tickets of the conversation in the store
	HandedBack   []NoteAhead   `json:"handed_back,omitempty"`
}

// Verdicts that are not a value of X-KV-Reuse.
const (
	VerdictTokens  = "tokens decide"
	VerdictEngines = "engines decide"
	VerdictRefused = "refused"
)

// Refusal is an error that the client would get.
type Refusal struct {
	Status  int    `json:"status"`
	Code    string `json:"code"`
	Message string `json:"message"`
	Param   any    `json:"param"`
}

// Identified says to which conversation and tenant the turn would belong.
type Identified struct {
	Known  bool   `json:"known"`            // an id was found
	Off    bool   `json:"off"`              // the client wants no reuse
	Hash   string `json:"hash,omitempty"`   // as in the log
	Source string `json:"source,omitempty"` // where the id was found
	Tenant string `json:"tenant"`           // what separates it from other tenants: "credential", "header" or "none"
}

// ProofInForce says how the turn would prove which tokens it may reuse.
type ProofInForce struct {
	Name string `json:"name"` // "tokens" or "history"
	// Ineligible says why the request itself takes no part in reuse; "" if it may.
	Ineligible string `json:"ineligible,omitempty"`
	Lacks      string `json:"lacks,omitempty"` // what the engines lack for a proof
	Asks       string `json:"asks,omitempty"`  // what an engine would be asked for: "incarnation", "probe", "tokens", "template" or "cache"
	Parity     string `json:"parity,omitempty"`
	Template   string `json:"template,omitempty"` // whether the chat template is append-only: "yes", "no" or "unknown"
}

// QueueNow says whether the turn would wait.
type QueueNow struct {
	Draining    bool `json:"draining"` // the server is shutting down and refuses the turn
	Full        bool `json:"full"`     // all slots are taken
	ToBegin     int  `json:"waiting_to_begin"`
	ForInstance int  `json:"waiting_for_instance"`
	Busy        bool `json:"instances_busy"` // all instances of a role are full
}

// PathAhead is the way that the turn would go.
type PathAhead struct {
	Way    string `json:"way"`
	Reason string `json:"reason,omitempty"`
	Tokens int    `json:"tokens"` // tokens of the prompt that are expected in no cache
	Header string `json:"header"` // X-KV-Path
}

// pairStatus returns the word that operators see for the status of a pair.
func pairStatus(of pairs.Status) string {
	switch of {
	case pairs.Proven:
		return "proven"
	case pairs.Trial:
		return "trial" // the turn would be the trial
	case pairs.Busy:
		return "busy"
	}
	return "stopped"
}
