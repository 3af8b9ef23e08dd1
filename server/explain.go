package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"carryover/server/background"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/pairs"
)

// Explanation predicts what would become of a request now, and why, from what is known without asking an engine. It repeats nothing of the
// request except the model's name and what an error would tell the client. The JSON names of its members are stable.
type Explanation struct {
	// Verdict is the X-KV-Reuse that the turn would show, except what only the turn itself can show (confirmed). It has three other values.
	// "tokens decide": only the ids of the prompt can tell, and prefill's /tokenize would be asked for them. "engines decide": an engine has
	// to be asked for something else, or the turn would wait for one. "refused": the client would get Error.
	Verdict  string `json:"verdict"`
	Sentence string `json:"sentence"`

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

// explain predicts a turn. It asks no engine and changes nothing, except that a store in memory records that the conversation was used.
func (s *Server) explain(ctx context.Context, requests *request.Reader, r *http.Request, api body.API, body []byte) *Explanation {
	t := &turn{Request: request.Request{API: api}, routing: s.routing.Load()}
	t.retry.picks.Refreshed = true // engines are not asked for their models
	t.record = record.NewBuilder("", api, record.Trace{})
	x := &Explanation{Endpoint: api.Path(), Tickets: []TicketAhead{}}
	toBegin, forInstance := s.Waiting()
	x.Queue = QueueNow{Draining: s.slots.Closed(), Full: s.slots.Full(), ToBegin: toBegin, ForInstance: forInstance}
	err := s.predict(ctx, requests, r, t, body, x)
	x.Model, x.Stream, x.Proof.Name = t.Model, t.Stream, t.record.Reuse().Proof
	x.Conversation = identified(t)
	x.Proof.Ineligible = t.proving.Ineligible
	switch {
	case err == nil && x.Queue.Draining:
		err = background.ErrShuttingDown
	case errors.Is(err, upstream.ErrBusy):
		x.Queue.Busy, x.Verdict, err = true, VerdictEngines, nil
	}
	if err != nil {
		e := s.errors.Map(err)
		x.Verdict, x.Error = VerdictRefused, &Refusal{Status: e.Status, Code: e.Code, Message: e.Message, Param: e.Param}
	}
	if p := t.record.Path(); p.Way != "" {
		x.Path = &PathAhead{p.Way, p.Reason, p.Tokens, p.Header()}
	}
	outcome := t.record.Reuse()
	if x.Verdict == "" {
		x.Verdict = outcome.Header(time.Now())
	}
	x.Sentence = x.sentence(&outcome)
	return x
}

func identified(t *turn) Identified {
	c := Identified{Known: t.Conversation.Known, Off: t.Conversation.Off, Hash: t.record.Asked().Conversation, Source: t.Conversation.Source, Tenant: "none"}
	switch tenant := t.Conversation.Tenant; {
	case strings.HasPrefix(tenant, "bearer:"):
		c.Tenant = "credential"
	case tenant != "":
		c.Tenant = "header"
	}
	return c
}

// predict follows the steps of a turn (intake.take, turns.attempt) up to its legs. It returns the error that would fail the turn.
func (s *Server) predict(ctx context.Context, requests *request.Reader, r *http.Request, t *turn, body []byte, x *Explanation) error {
	tenant, err := requests.Tenant(r)
	if err != nil {
		return err
	}
	if err = requests.CheckFraming(r); err != nil {
		return err
	}
	share := requests.Reserve(r, tenant)
	defer share.GiveBack()
	if t.Request, t.body, err = requests.Understand(r, t.API, tenant, body, &share); err != nil {
		return err
	}
	t.proving = s.intake.prover.Begin(&t.Request, t.body, &t.record)

	finder, picker := s.turns.finder.Predict(&t.proving), s.turns.picker.Predictor(lastRead{}, unoccupied{s.deps.Fleet, s.engineSlots})
	t.lookup = finder.Look(ctx)
	if t.proving.TakesPart() && t.Conversation.Known {
		x.Store = t.lookup.Outcome.String()
	}
	t.chain = picker.PromptChain(t.body)
	p, _, err := picker.Pick(ctx, t.picks())
	if err != nil {
		x.Tickets = listTickets(ctx, s.deps.Fleet, finder, t.lookup.Branches, nil, false)
		return err
	}
	x.Decode = engineAhead(p.Decode)
	if p.Prefill != nil {
		x.Prefill = engineAhead(p.Prefill)
		x.Pair = pairStatus(p.Prefill.StatusWith(p.Decode))
	}
	known := finder.Begin(reuse.Pair{Prefill: p.Prefill, Decode: p.Decode, Quarantined: p.Quarantined})
	x.Proof.Lacks, x.Proof.Asks = known.Lacks, known.Asks
	x.Proof.Parity, x.Proof.Template = finding(known.Parity), finding(known.Template)
	if t.lookup.AllHandedBack() && x.Proof.Asks == proof.AsksTokens {
		x.Proof.Asks, known.Asks = reuse.AsksCache, ""
	}
	switch finder.Find(ctx, known) {
	case "":
	case proof.AsksTokens:
		x.Verdict = VerdictTokens
	default:
		x.Verdict = VerdictEngines
	}
	x.HandedBack = listNotes(s.deps.Fleet, t.lookup.Notes)
	compared := t.proving.TakesPart() && p.Prefill != nil && finder.Excludes() == "" && known.Miss == "" && known.Asks == ""
	x.Tickets = listTickets(ctx, s.deps.Fleet, finder, t.lookup.Branches, p.Prefill, compared)
	return nil
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
