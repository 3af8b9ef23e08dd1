// Package fault says how an instance misbehaves: the kinds of faults, the faults that are set, and which one a request gets. The handler of
// the request applies the fault.
package fault

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The kinds of Fault.
const (
	// Refuse stops listening, so that dials are refused, and drops idle connections. It lasts until it is cleared; the other members of Fault
	// have no effect.
	Refuse = "refuse"
	// Reset closes the connection when the request has been read.
	Reset = "reset"
	// LostAnswer does the work of a request without a stream, and then closes the connection instead of answering.
	LostAnswer = "lost_answer"
	// LostStatus does the same work, and then answers Status (500 by default) with an error body.
	LostStatus = "lost_status"
	// Silent reads the request and never answers.
	Silent = "silent"
	// Restart restarts the instance when the request arrives; the request is lost.
	Restart = "restart"
	// Status answers Status (500 by default) with an error body, and Retry-After if RetryAfter is set.
	Status = "status"
	// ErrorBody200 answers 200 with an error body. In a stream the error is the only event; chat adds [DONE].
	ErrorBody200 = "error_body_200"
	// SlowHeaders waits Delay of engine time before it does anything.
	SlowHeaders = "slow_headers"
	// SlowStream waits Delay of engine time before each event.
	SlowStream = "slow_stream"
	// GarbageJSON replaces the body, or the event after Events events, by text that is not JSON.
	GarbageJSON = "garbage_json"
	// TruncatedJSON cuts the body, or the event after Events events, in the middle.
	TruncatedJSON = "truncated_json"
	// WrongContentType answers with the content type text/html.
	WrongContentType = "wrong_content_type"
	// NullParams answers with kv_transfer_params null and frees the blocks.
	NullParams = "null_params"
	// BadParams answers with Params in place of the engine's. By default they have flattened block ids, a port of the wrong type and no
	// request id. The blocks stay pinned.
	BadParams = "bad_params"
	// DieBeforeFirstEvent closes the connection after the headers of a stream.
	DieBeforeFirstEvent = "die_before_first_event"
	// DieMidEvent closes the connection in the middle of the event after Events events.
	DieMidEvent = "die_mid_event"
	// EndWithoutDone ends a stream normally but without [DONE], after Events events unless that is 0.
	EndWithoutDone = "end_without_done"
	// NeverEnd sends everything but [DONE] and keeps the connection open.
	NeverEnd = "never_end"
	// DoubleDone ends a stream with [DONE] twice.
	DoubleDone = "double_done"
	// EventAfterDone sends the event with kv_transfer_params again after [DONE], and then another [DONE].
	EventAfterDone = "event_after_done"
	// LostID leaves one id of the output out of the ids that the engine reports. Its draw depends only on Config.Seed. The KV,
	// remote_num_tokens and usage do not change.
	LostID = "lost_id"
	// DoubledID makes the engine report one id of the output twice.
	DoubledID = "doubled_id"
	// OtherIDs changes the twentieth id from the end of forwarded ids or of a hand-back's ids. The engine computes another id there, reports
	// it in prompt_token_ids, and files the result in the prefix cache under the ids that were sent. For a hand-back it also computes all
	// tokens from there on, although it has read them.
	OtherIDs = "other_ids"
	// NoIDEcho leaves prompt_token_ids null, like engines without return_token_ids.
	NoIDEcho = "no_id_echo"
	// NoUsage omits usage from a stream.
	NoUsage = "no_usage"
	// OtherUsage counts one prompt token too many in usage.
	OtherUsage = "other_usage"
	// Comments writes comments and blank lines around the first event of a stream and before the last one, as engines and gateways do to keep
	// a connection alive. Comments of Fault adds them to another fault.
	Comments = "comments"
	// SplitUsage writes each event with usage on two data lines, which are one event (WHATWG HTML 9.2.6).
	SplitUsage = "split_usage"
	// ErrorEvent ends a stream with an error event in place of the first token, after all work on the prompt. The Responses API gets OpenAI's
	// event, because vLLM has none there.
	ErrorEvent = "error_event"
	// HiddenStart omits process_start_time_seconds from /metrics, the default of its Route.
	HiddenStart = "hidden_start"
	// Slow makes the engine take Factor times as long for the request, 10 by default. Requests behind it wait longer too.
	Slow = "slow"
	// TransferStuck makes an LMCache sender allocate at the receiver, but push nothing and notify nobody.
	TransferStuck = "transfer_stuck"
	// TransferFails makes the sender withdraw its allocation. Only StoragePDStatus reports it, as FAILED.
	TransferFails = "transfer_fails"
	// NoticeLost makes the sender push without a notification.
	NoticeLost = "notice_lost"
	// NoticeTwice makes the sender send each notification twice.
	NoticeTwice = "notice_twice"
	// NoticeGarbage makes the sender send frames before each notification that are no notifications.
	NoticeGarbage = "notice_garbage"
)

func faultKinds() []string {
	return []string{
		Refuse, Reset, LostAnswer, LostStatus, Silent, Restart, Status, ErrorBody200, SlowHeaders, SlowStream,
		GarbageJSON, TruncatedJSON, WrongContentType, NullParams, BadParams,
		DieBeforeFirstEvent, DieMidEvent, EndWithoutDone, NeverEnd,
		DoubleDone, EventAfterDone, LostID, DoubledID, OtherIDs,
		NoIDEcho, NoUsage, OtherUsage, Comments, SplitUsage, ErrorEvent, HiddenStart,
		Slow, TransferStuck, TransferFails, NoticeLost, NoticeTwice, NoticeGarbage,
	}
}

// Fault makes an instance misbehave. A request gets the first of the set faults that applies to it.
type Fault struct {
	// Kind is a constant such as Refuse.
	Kind string `json:"kind"`
	// Route is a prefix of the affected paths. Empty means chat and text completions, messages and responses.
	Route string `json:"route,omitempty"`
	// Tickets limits the fault to prefill legs with a ticket: remote_block_ids, and remote_num_tokens above 0.
	Tickets bool `json:"tickets,omitempty"`
	// Handovers limits the fault to decode legs that read KV of prefill: do_remote_prefill.
	Handovers bool `json:"handovers,omitempty"`
	// HandBacks limits the fault to hand-backs, as Stats counts them.
	HandBacks bool `json:"hand_backs,omitempty"`
	// Count is the number of affected requests; 0 means all until the fault is cleared.
	Count int `json:"count,omitempty"`
	// Probability is the share of affected requests; 0 means all. The draw depends only on Config.Seed.
	Probability float64 `json:"probability,omitempty"`

	Status     int             `json:"status,omitempty"`
	RetryAfter string          `json:"retry_after,omitempty"`
	Delay      time.Duration   `json:"delay,omitempty"`
	Factor     float64         `json:"factor,omitempty"`
	Events     int             `json:"events,omitempty"`
	Comments   bool            `json:"comments,omitempty"`
	Params     json.RawMessage `json:"params,omitempty"`
}

// Set holds the faults of an instance.
type Set struct {
	Places int // LostID and DoubledID change one of the first places ids

	mu   sync.Mutex // guards what follows
	list []*Fault
	Draw *rand.Rand
}

// Add sets a fault.
func (f *Set) Add(fault Fault) error {
	if !slices.Contains(faultKinds(), fault.Kind) {
		return fmt.Errorf("fault kind %q: must be one of %q", fault.Kind, faultKinds())
	}
	if fault.Status == 0 {
		fault.Status = http.StatusInternalServerError
	}
	if fault.Factor == 0 {
		fault.Factor = 10
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = append(f.list, &fault)
	return nil
}

// Clear removes all faults.
func (f *Set) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

// All returns the faults that are set.
func (f *Set) All() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Fault, len(f.list))
	for i, fault := range f.list {
		list[i] = *fault
	}
	return list
}

// Refuses reports whether the instance accepts no connection.
func (f *Set) Refuses() bool {
	return slices.ContainsFunc(f.All(), func(fault Fault) bool { return fault.Kind == Refuse })
}

// Pick returns the fault for a request, or nil, and counts it as used.
func (f *Set) Pick(r Request) *Active {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.list {
		if fault.Kind == Refuse || !fault.concerns(r) {
			continue
		}
		if fault.Probability > 0 && f.Draw.Float64() >= fault.Probability {
			continue
		}
		active := &Active{Fault: *fault}
		if fault.Kind == LostID || fault.Kind == DoubledID {
			active.place = f.Draw.IntN(f.Places)
		}
		if fault.Count == 1 {
			f.list = slices.Delete(f.list, i, i+1)
		} else if fault.Count > 1 {
			fault.Count--
		}
		return active
	}
	return nil
}

// Request has what decides whether a fault applies to a request.
type Request struct {
	Path     string
	Metrics  bool        // it is for /metrics
	Answers  bool        // it is for a chat or text completion, a message or a response
	Ticket   func() bool // it is a prefill leg with blocks to be read
	Handover func() bool // it is a decode leg that reads KV of prefill
	HandBack func() bool
}

func (f *Fault) concerns(r Request) bool {
	switch {
	case f.Route != "" && !strings.HasPrefix(r.Path, f.Route):
		return false
	case f.Route == "" && f.Kind == HiddenStart:
		return r.Metrics
	case f.Route == "" && !r.Answers:
		return false
	}
	return (!f.Tickets || r.Ticket()) && (!f.Handovers || r.Handover()) && (!f.HandBacks || r.HandBack())
}

// Active is a fault of one request. The methods of a nil Active do nothing.
type Active struct {
	Fault
	place int // position of the id that LostID and DoubledID change
}

// Is reports whether the request has a fault of the kind.
func (f *Active) Is(kind string) bool { return f != nil && f.Kind == kind }

// Slowness returns the factor by which the engine is slower for the request.
func (f *Active) Slowness() float64 {
	if f.Is(Slow) {
		return f.Factor
	}
	return 1
}

// Tells returns what an engine reports of the id at position n of an answer: the id, unless the fault loses or doubles it. In an answer that
// ends before the place of the fault, the fault affects the last id.
func (f *Active) Tells(n int, id int32, last bool) []int32 {
	lost, doubled := f.Is(LostID), f.Is(DoubledID)
	switch here := (lost || doubled) && (n == f.place || last && n < f.place); {
	case here && lost:
		return []int32{}
	case here:
		return []int32{id, id}
	}
	return []int32{id}
}

// ReplaceID returns a copy of the ids with the one replaced that OtherIDs changes.
func ReplaceID(sent []int32) []int32 {
	const behind, other = 20, 700
	ids := slices.Clone(sent)
	at := max(0, len(ids)-behind)
	if ids[at] == other {
		ids[at]++
	} else {
		ids[at] = other
	}
	return ids
}
