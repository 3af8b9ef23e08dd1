package vllmsim

import (
	"encoding/json"
	"errors"
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
	// FaultRefuse stops listening, so that a dial is refused, and drops idle connections. It lasts until it is cleared; the other
	// members of Fault have no effect.
	FaultRefuse = "refuse"
	// FaultReset closes the connection when the request has been read.
	FaultReset = "reset"
	// FaultLostAnswer does the work of a request that is answered in one piece, and then closes the connection instead of answering.
	FaultLostAnswer = "lost_answer"
	// FaultLostStatus does that work too, and then answers Status (500 by default) with an error body.
	FaultLostStatus = "lost_status"
	// FaultSilent reads the request and never answers.
	FaultSilent = "silent"
	// FaultRestart restarts the instance when the request arrives; the request is lost.
	FaultRestart = "restart"
	// FaultStatus answers Status (500 by default) with an error body, and Retry-After if RetryAfter is set.
	FaultStatus = "status"
	// FaultErrorBody200 answers 200 with an error body. In a stream it is the only event; in chat's, [DONE] follows.
	FaultErrorBody200 = "error_body_200"
	// FaultSlowHeaders waits Delay of engine time before it does anything.
	FaultSlowHeaders = "slow_headers"
	// FaultSlowStream waits Delay of engine time before each event.
	FaultSlowStream = "slow_stream"
	// FaultGarbageJSON replaces the body, or the event after Events events, by something that is not JSON.
	FaultGarbageJSON = "garbage_json"
	// FaultTruncatedJSON cuts the body, or the event after Events events, in the middle.
	FaultTruncatedJSON = "truncated_json"
	// FaultWrongContentType answers with the content type text/html.
	FaultWrongContentType = "wrong_content_type"
	// FaultNullParams answers with kv_transfer_params null and frees the blocks.
	FaultNullParams = "null_params"
	// FaultBadParams answers with Params in place of the engine's. The default is an object with flattened block ids, a port of
	// the wrong type and no request id. The blocks stay pinned.
	FaultBadParams = "bad_params"
	// FaultDieBeforeFirstEvent closes the connection after the headers of a stream.
	FaultDieBeforeFirstEvent = "die_before_first_event"
	// FaultDieMidEvent closes the connection in the middle of the event after Events events.
	FaultDieMidEvent = "die_mid_event"
	// FaultEndWithoutDone ends a stream normally but without [DONE].
	FaultEndWithoutDone = "end_without_done"
	// FaultNeverEnd sends everything but [DONE] and keeps the connection open.
	FaultNeverEnd = "never_end"
	// FaultDoubleDone ends a stream with [DONE] twice.
	FaultDoubleDone = "double_done"
	// FaultEventAfterDone sends the event with kv_transfer_params once more behind [DONE], and another [DONE].
	FaultEventAfterDone = "event_after_done"
	// FaultLostID leaves one id of the output out of the ids that the engine reports. The id is drawn as Probability is; the KV,
	// remote_num_tokens and usage do not change.
	FaultLostID = "lost_id"
	// FaultDoubledID makes the engine report one id of the output twice.
	FaultDoubledID = "doubled_id"
	// FaultOtherIDs changes the twentieth id from the end of forwarded ids or of a hand-back's ids: the engine computes another id there and
	// reports it in prompt_token_ids. It files the result in the prefix cache under the ids that were sent. For a hand-back it also computes
	// all tokens from there on, although it has read them.
	FaultOtherIDs = "other_ids"
	// FaultNoIDEcho leaves prompt_token_ids null, like engines that do not know return_token_ids.
	FaultNoIDEcho = "no_id_echo"
	// FaultNoUsage omits usage from a stream.
	FaultNoUsage = "no_usage"
	// FaultOtherUsage counts one prompt token too many in usage.
	FaultOtherUsage = "other_usage"
	// FaultComments writes comments and blank lines before and behind the first event of a stream, and before the last one, as engines and
	// gateways do to keep a connection alive. Comments of Fault adds them to another fault.
	FaultComments = "comments"
	// FaultSplitUsage writes each event that has usage on two data lines. By WHATWG HTML 9.2.6 they are still one event.
	FaultSplitUsage = "split_usage"
	// FaultErrorEvent ends a stream with an error event in place of the first token, after all work on the prompt. On the Responses API the
	// event is OpenAI's, since vLLM has none there.
	FaultErrorEvent = "error_event"
	// FaultHiddenStart omits process_start_time_seconds from /metrics. /metrics is also the default of its Route.
	FaultHiddenStart = "hidden_start"
	// FaultSlow makes the engine take Factor times as long for the request, 10 by default; requests behind it wait longer too.
	FaultSlow = "slow"
	// FaultTransferStuck makes an LMCache sender allocate at the receiver and push nothing. It notifies nobody.
	FaultTransferStuck = "transfer_stuck"
	// FaultTransferFails makes the sender take back its allocation. Only StoragePDStatus reports that, as FAILED.
	FaultTransferFails = "transfer_fails"
	// FaultNoticeLost makes the sender push without a notification.
	FaultNoticeLost = "notice_lost"
	// FaultNoticeTwice makes the sender send each notification twice.
	FaultNoticeTwice = "notice_twice"
	// FaultNoticeGarbage makes the sender send frames that are not notifications before each notification.
	FaultNoticeGarbage = "notice_garbage"
)

func faultKinds() []string {
	return []string{
		FaultRefuse, FaultReset, FaultLostAnswer, FaultLostStatus, FaultSilent, FaultRestart, FaultStatus, FaultErrorBody200, FaultSlowHeaders, FaultSlowStream,
		FaultGarbageJSON, FaultTruncatedJSON, FaultWrongContentType, FaultNullParams, FaultBadParams,
		FaultDieBeforeFirstEvent, FaultDieMidEvent, FaultEndWithoutDone, FaultNeverEnd,
		FaultDoubleDone, FaultEventAfterDone, FaultLostID, FaultDoubledID, FaultOtherIDs,
		FaultNoIDEcho, FaultNoUsage, FaultOtherUsage, FaultComments, FaultSplitUsage, FaultErrorEvent, FaultHiddenStart,
		FaultSlow, FaultTransferStuck, FaultTransferFails, FaultNoticeLost, FaultNoticeTwice, FaultNoticeGarbage,
	}
}

// Fault makes an instance misbehave. Several may be set; a request gets the first that applies to it.
type Fault struct {
	// Kind is one of the Fault constants.
	Kind string `json:"kind"`
	// Route is a prefix of the affected paths. If it is empty, they are chat and text completions, messages and responses.
	Route string `json:"route,omitempty"`
	// Tickets limits the fault to prefill legs with a ticket to be read: remote_block_ids, and remote_num_tokens above 0.
	Tickets bool `json:"tickets,omitempty"`
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

// faults are the faults that are set on an instance.
type faults struct {
	mu   sync.Mutex // guards what follows
	list []*Fault
	draw *rand.Rand
}

func (f *faults) add(fault Fault) error {
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

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = nil
}

func (f *faults) all() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]Fault, len(f.list))
	for i, fault := range f.list {
		list[i] = *fault
	}
	return list
}

// refuses reports whether the instance accepts no connection.
func (f *faults) refuses() bool {
	return slices.ContainsFunc(f.all(), func(fault Fault) bool { return fault.Kind == FaultRefuse })
}

// pick returns the fault for a request to path, or nil, and uses it up.
func (f *faults) pick(path string, body []byte, c *clock) *activeFault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fault := range f.list {
		if fault.Kind == FaultRefuse || !fault.concerns(path, body) {
			continue
		}
		if fault.Probability > 0 && f.draw.Float64() >= fault.Probability {
			continue
		}
		active := &activeFault{Fault: *fault, clock: c}
		if fault.Kind == FaultLostID || fault.Kind == FaultDoubledID {
			active.place = f.draw.IntN(shortestTarget)
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

func (f *Fault) concerns(path string, body []byte) bool {
	switch {
	case f.Route != "" && !strings.HasPrefix(path, f.Route):
		return false
	case f.Route == "" && f.Kind == FaultHiddenStart:
		return path == pathMetrics
	case f.Route == "" && path != pathChat && path != pathCompletions && path != pathMessages && path != pathResponses:
		return false
	}
	return (!f.Tickets || carriesTicket(body)) && (!f.HandBacks || handsBack(path, body))
}

// carriesTicket reports whether a request is a prefill leg with blocks to be read.
func carriesTicket(body []byte) bool {
	r, err := parseBody(body)
	if err != nil {
		return false
	}
	tokens, _ := r.params.integer("remote_num_tokens")
	return r.params.prefills() && r.params.truthy("remote_block_ids") && tokens > 0
}

// activeFault is a fault of one request. The methods of a nil activeFault do nothing.
type activeFault struct {
	Fault
	clock *clock
	place int // position of the id that FaultLostID and FaultDoubledID change
}

func (f *activeFault) is(kind string) bool { return f != nil && f.Kind == kind }

// slowness returns the factor of the time that the engine takes for the request.
func (f *activeFault) slowness() float64 {
	if f.is(FaultSlow) {
		return f.Factor
	}
	return 1
}

// params returns the kv_transfer_params of the answer.
func (f *activeFault) params(e *engine, p *paramsOut) (json.RawMessage, error) {
	switch {
	case f.is(FaultBadParams) && f.Params != nil:
		return f.Params, nil
	case f.is(FaultBadParams):
		return json.RawMessage(`{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":[1,2],"remote_engine_id":"bad","remote_host":"127.0.0.1","remote_port":"x","remote_num_tokens":"many"}`), nil
	case p == nil:
		return jsonNull, nil
	case f.is(FaultNullParams):
		e.unpin(p.RemoteRequestID) // does nothing for a connector that pins under another id
		return jsonNull, nil
	default:
		return marshal(p.object())
	}
}

// before acts on a request once it has been read. done says that the request needs no further work.
func (f *activeFault) before(i *Instance, w http.ResponseWriter, req *http.Request, body []byte) (done bool, err error) {
	if f == nil {
		return false, nil
	}
	switch f.Kind {
	case FaultReset:
		return true, errConnectionGone
	case FaultSilent:
		<-req.Context().Done()
		return true, errConnectionGone
	case FaultRestart:
		i.Restart()
		return true, errConnectionGone
	case FaultSlowHeaders:
		if f.clock.wait(req.Context(), f.Delay) != nil {
			return true, errConnectionGone
		}
	case FaultStatus:
		if f.RetryAfter != "" {
			w.Header().Set("Retry-After", f.RetryAfter)
		}
		return true, &apiError{status: f.Status, kind: errorType(f.Status), message: "simulated fault"}
	case FaultErrorBody200:
		if !wantsStream(body) {
			return true, writeJSON(w, http.StatusOK, i.errorBody(internalError(), req.URL.Path))
		}
		if req.URL.Path == pathMessages {
			s := newMessageStream(w, nil)
			return true, errors.Join(s.open(), s.write("error", i.errorBody(internalError(), pathMessages)))
		}
		if req.URL.Path == pathResponses {
			s := newResponseStream(w, nil)
			return true, errors.Join(s.open(), s.fail(internalError()))
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, err := w.Write(slices.Concat([]byte("data: "), i.errorEvent(internalError()), []byte("\n\ndata: [DONE]\n\n")))
		return true, err
	}
	return false, nil
}
