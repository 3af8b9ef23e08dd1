// Package explain answers operators what would become of a request. It reads the request as a turn does, and predicts with the turn's own
// finder and picker, of which those parts are replaced that ask engines, occupy slots or take tickets (package reuse, Predictor; dry.go). So
// an explanation can't differ from what turns do, and changes nothing.
//
//   - handler.go: reads what is asked
//   - explain.go: follows the steps of a turn up to its legs
//   - explanation.go: what is answered
//   - tickets.go, notes.go: what the store has of the conversation, and which of it could be used
//   - words.go: the same in a sentence
package explain

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strings"
	"time"

	"carryover/convcache"
	"carryover/server/apierror"
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// maxExplaining bounds the requests that are explained at the same time: each holds its body, which counts against no client's share.
const maxExplaining = 2

// Explainer answers what would become of a request, for operators only: it shows the state of any client's conversation to a caller who sends
// that conversation's id and the client's credential. As in a turn, a conversation belongs to the credential in headers, so without a
// tenant's credential none of the tenant's conversations is found. Create it with New.
type Explainer struct {
	deps     Deps
	requests *request.Reader
	maxBytes int64         // of a request to be explained
	slots    chan struct{} // has one element for each request that is being explained
}

// Config says how the requests of turns are read.
type Config struct {
	request.Config
	Secret         convcache.Secret
	Named          bool // each request names the prefill instance that is to serve it
	MaxHeaderBytes int
}

// Deps is what turns are served with. None of it is changed.
type Deps struct {
	Fleet   *fleet.Fleet
	Prover  *reuse.Prover
	Finder  *reuse.Finder
	Picker  *pick.Picker
	Errors  *apierror.Mapper
	Routing func() pick.Routing // of turns that begin now
	Queue   func() QueueNow     // Busy is left out
}

// New returns an explainer. Its reader of requests counts their memory for no client, and takes the prefill instance that a request names as
// it is. A turn would add that instance to the fleet, or be refused.
func New(cfg Config, deps Deps) *Explainer {
	var prefillers request.Prefillers
	if cfg.Named {
		prefillers = asNamed{}
	}
	return &Explainer{
		deps: deps, slots: make(chan struct{}, maxExplaining),
		requests: request.NewReader(cfg.Config, cfg.Secret, request.NewInflight(math.MaxInt64, cfg.MaxBodyBytes), prefillers),
		// Everything besides the body is small. A body that is a string may need an escape for each of its bytes.
		maxBytes: 2*cfg.MaxBodyBytes + int64(cfg.MaxHeaderBytes),
	}
}

// explanation is one explanation under way: what a turn would know of its request.
type explanation struct {
	*Explainer
	request request.Request
	proving reuse.Proving
	record  record.Builder
	x       *Explanation
}

// explain predicts a turn. It asks no engine and changes nothing, except that a store in memory records that the conversation was used.
func (e *Explainer) explain(ctx context.Context, r *http.Request, api body.API, raw []byte) *Explanation {
	x := &Explanation{Endpoint: api.Path(), Tickets: []TicketAhead{}, Queue: e.deps.Queue()}
	now := explanation{Explainer: e, request: request.Request{API: api}, record: record.NewBuilder("", api, record.Trace{}), x: x}
	err := now.predict(ctx, r, raw)
	outcome := now.record.Reuse()
	x.Model, x.Stream, x.Proof.Name = now.request.Model, now.request.Stream, outcome.Proof
	x.Conversation = now.identified()
	switch {
	case err == nil && x.Queue.Draining:
		err = background.ErrShuttingDown
	case errors.Is(err, upstream.ErrBusy):
		x.Queue.Busy, x.Verdict, err = true, VerdictEngines, nil
	}
	if err != nil {
		failed := e.deps.Errors.Map(err)
		x.Verdict, x.Error = VerdictRefused, &Refusal{Status: failed.Status, Code: failed.Code, Message: failed.Message, Param: failed.Param}
	}
	if p := now.record.Path(); p.Way != "" {
		x.Path = &PathAhead{p.Way, p.Reason, p.Tokens, p.Header()}
	}
	if x.Verdict == "" {
		x.Verdict = outcome.Header(time.Now())
		_, reason := outcome.Outcome()
		x.Hint = record.Hint(reason, now.record.Path().Reason)
	}
	x.Sentence = x.sentence(&outcome)
	return x
}

func (n *explanation) identified() Identified {
	of := &n.request.Conversation
	c := Identified{Known: of.Known, Off: of.Off, Hash: n.record.Asked().Conversation, Source: of.Source, Tenant: "none"}
	switch {
	case strings.HasPrefix(of.Tenant, "bearer:"):
		c.Tenant = "credential"
	case of.Tenant != "":
		c.Tenant = "header"
	}
	return c
}

// predict follows the steps of a turn up to its legs. It returns the error that would fail the turn.
func (n *explanation) predict(ctx context.Context, r *http.Request, raw []byte) error {
	tenant, err := n.requests.Tenant(r)
	if err != nil {
		return err
	}
	if err = n.requests.CheckFraming(r); err != nil {
		return err
	}
	share := n.requests.Reserve(r, tenant)
	defer share.GiveBack()
	var prompt *body.Request
	if n.request, prompt, err = n.requests.Understand(r, n.request.API, tenant, raw, &share); err != nil {
		return err
	}
	n.proving = n.deps.Prover.Begin(&n.request, prompt, &n.record)
	n.x.Proof.Ineligible = n.proving.Ineligible
	predicted := n.deps.Finder.Predict(&n.proving)
	looked := predicted.Look(ctx)
	if n.proving.TakesPart() && n.request.Conversation.Known {
		n.x.Store = looked.Outcome.String()
	}
	picker := n.deps.Picker.Predictor(lastRead{}, unoccupied{n.deps.Picker.Slots(), n.deps.Fleet})
	p, _, err := picker.Pick(ctx, pick.Attempt{
		Request: &n.request, Body: prompt, Client: share.Client, Chain: picker.PromptChain(prompt), Holds: looked.Holdings(), Owned: looked.Owned(), PrefixHints: looked.PrefixHints(),
		Tickets: n.proving.TakesPart(), Routing: n.deps.Routing(), Record: &n.record,
		Earlier: pick.Earlier{Refreshed: true}, // engines are not asked for their models
	})
	if err != nil {
		n.x.Tickets = listTickets(ctx, n.deps.Fleet, predicted, looked.Branches, nil, false)
		return err
	}
	n.x.Decode = engineAhead(p.Decode)
	if p.Prefill != nil {
		n.x.Prefill = engineAhead(p.Prefill)
		n.x.Pair = pairStatus(p.Prefill.StatusWith(p.Decode))
	}
	n.reuse(ctx, predicted, looked, p)
	return nil
}

// reuse predicts what the turn would reuse on a pair.
func (n *explanation) reuse(ctx context.Context, predicted *reuse.Predictor, looked reuse.Lookup, p *pick.Pair) {
	known := predicted.Begin(reuse.Incarnations{Prefill: p.Prefill, Decode: p.Decode, Quarantined: p.Quarantined})
	in := &n.x.Proof
	in.Lacks, in.Asks, in.Parity, in.Template = known.Lacks, known.Asks, finding(known.Parity), finding(known.Template)
	if looked.AllHandedBack() && in.Asks == proof.AsksTokens {
		in.Asks, known.Asks = reuse.AsksCache, ""
	}
	switch predicted.Find(ctx, known) {
	case "":
	case proof.AsksTokens:
		n.x.Verdict = VerdictTokens
	default:
		n.x.Verdict = VerdictEngines
	}
	n.x.HandedBack = listNotes(n.deps.Fleet, looked.Notes)
	compared := n.proving.TakesPart() && p.Prefill != nil && predicted.Excludes() == "" && known.Miss == "" && known.Asks == ""
	n.x.Tickets = listTickets(ctx, n.deps.Fleet, predicted, looked.Branches, p.Prefill, compared)
}
