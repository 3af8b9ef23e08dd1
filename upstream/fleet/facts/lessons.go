package facts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// A lesson is one /tokenize and one prefill leg of about a hundred tokens.
const (
	maxTaughtModels = 8 // the first ones that the engine lists; a list may have hundreds of adapters
	lessonLimit     = 10 * time.Second
	lessonRetry     = 30 * time.Second // after a lesson without a proper answer
	maxFailures     = 3
)

// Lessons teach a prefill incarnation's [Parity] the common shapes before a turn needs them. A lesson sends a short
// conversation to /tokenize and to the completion endpoint, without kv_transfer_params, so that nothing stays pinned.
type Lessons struct {
	*asker
	capability *Capability
	parity     *Parity
	prompts    *Prompts

	mu       sync.Mutex     // held while lessons run; guards the rest
	given    map[string]int // lessons per model that are done
	failures int
	rests    time.Time // no lesson before
}

// Taught is what lessons have shown.
type Taught struct {
	Equal     int      // shapes whose /tokenize is believed now
	Different []string // shapes whose /tokenize is not
	Unknown   int      // lessons that the engine refused, as it would a turn
}

// Teach gives these models their remaining lessons, one after another, with our own key. It gives none while another call does. It ends early
// if ready returns false before a lesson, or ctx ends. After a meaningless answer no lesson follows for 30 s, and after three for good. Only
// turns teach an engine that refuses our key or reports no ids.
func (l *Lessons) Teach(ctx context.Context, models []Model, ready func() bool) (shown Taught) {
	if !l.known || !l.mu.TryLock() {
		return shown
	}
	defer l.mu.Unlock()
	models = models[:min(len(models), maxTaughtModels)]
	maps.DeleteFunc(l.given, func(model string, _ int) bool { // a model that comes back gets its lessons again
		return !slices.ContainsFunc(models, func(m Model) bool { return m.ID == model })
	})
	switch {
	case l.failures >= maxFailures, l.shared.Now().Before(l.rests), !slices.ContainsFunc(models, func(m Model) bool { return l.given[m.ID] < lessonCount }),
		l.capability.settled(body.Chat) && l.capability.UsesIDs(body.Chat) != Yes, // parity is of no use yet
		l.capability.Probe(ctx, body.Chat, "") != Yes:
		return shown
	}
	all := allLessons()
	for _, m := range models {
		for l.given[m.ID] < lessonCount {
			if ctx.Err() != nil || !ready() {
				return shown
			}
			err := l.give(ctx, all[l.given[m.ID]], m.ID, &shown)
			switch {
			case ctx.Err() != nil:
				return shown
			case err == nil:
				l.given[m.ID]++
			case errors.Is(err, errNoModel):
				l.given[m.ID] = lessonCount
			case errors.Is(err, errNoLessons):
				l.failures = maxFailures
				return shown
			default:
				l.failures++
				l.rests = l.shared.Now().Add(lessonRetry)
				return shown
			}
		}
	}
	return shown
}

var (
	errNoLessons = errors.New("the engine can't be taught")
	errNoModel   = errors.New("the engine does not serve the model any more")
)

// give returns an error if the lesson had no proper answer. It needs l.mu.
func (l *Lessons) give(ctx context.Context, this lesson, model string, shown *Taught) (err error) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			err = errDefect
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, lessonLimit)
	defer cancel()
	req, err := body.ParseRequest(body.Chat, this.request(model))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoLessons, err)
	}
	shape, comparable := req.FeatureSet()
	if !comparable {
		return nil
	}
	if found := l.parity.Of(model, shape); found != Unknown { // a turn was faster
		l.parity.teach(model, shape, found == Yes)
		return nil
	}
	tokenised, err := l.prompts.Read(ctx, req, "")
	if err != nil {
		return l.refused(err, shown)
	}
	defer tokenised.Done()
	rendered, err := l.prefill(ctx, req)
	if err != nil {
		return l.refused(err, shown)
	}
	if l.parity.teach(model, shape, rawjson.EqualIDs(rendered, tokenised.IDs)) == Yes {
		shown.Equal++
	} else {
		shown.Different = append(shown.Different, shape)
	}
	return nil
}

func (l *Lessons) prefill(ctx context.Context, req *body.Request) (rendered []byte, err error) {
	leg := req.PrefillBody(body.LegEdit{ReturnTokenIDs: true}).Bytes()
	status, answer, err := l.post(ctx, req.API.Path(), leg, "")
	if err != nil || status != http.StatusOK {
		return nil, askFailed(l.instance(), "lesson", status, answer, err)
	}
	if !rawjson.Valid(answer) {
		return nil, askFailed(l.instance(), "lesson", status, nil, nil)
	}
	rendered = rawjson.Get(answer, "prompt_token_ids")
	if _, ok := rawjson.ParseIDs(rendered); !ok {
		return nil, errNoLessons
	}
	return rendered, nil
}

// refused returns nil if the refusal concerns only the shape, such as tools without --enable-auto-tool-choice, or a
// system message that the template lacks.
func (l *Lessons) refused(err error, shown *Taught) error {
	var failed *upstream.LegError
	if !errors.As(err, &failed) || failed.Kind != upstream.Status {
		return err
	}
	switch failed.Status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		shown.Unknown++
		return nil
	case http.StatusNotFound: // see unserved
		if failed.Param != "" || failed.Type == "NotFoundError" {
			return errNoModel
		}
		return errNoLessons
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed:
		return errNoLessons
	}
	return err
}

// lesson is a short conversation in a shape that clients send from their second turn on. A first turn needs no parity,
// because no ticket can exist. Requests of other APIs are rendered and have none.
type lesson struct {
	system  bool
	members string // beside model and messages, each followed by a comma
	history string // messages after the system message
	thought string // extra member of each assistant message, "" for none
}

// The messages are like clients', to show what a template does with tools, calls and thoughts.
const (
	sampleSystem  = `{"role":"system","content":"Be brief."}`
	sampleUser    = `{"role":"user","content":"Is it raining?"}`
	sampleParts   = `{"role":"user","content":[{"type":"text","text":"Is it"},{"type":"text","text":"raining?"}]}`
	sampleReply   = `{"role":"assistant","content":"It is."}`
	sampleResult  = `{"role":"tool","tool_call_id":"call_1","content":"Rain, 9 degrees."}`
	sampleCall    = `{"role":"assistant","content":null,` + sampleCalls + `}`
	sampleCalls   = `"tool_calls":[{"id":"call_1","type":"function","function":{"name":"look","arguments":"{\"place\": \"Oslo\"}"}}]`
	sampleTools   = `"tools":[{"type":"function","function":{"name":"look","description":"The weather.","parameters":{"type":"object","properties":{"place":{"type":"string"}},"required":["place"]}}}],`
	sampleAuto    = sampleTools + `"tool_choice":"auto",`
	sampleThinks  = `"reasoning":"I look outside."`         // vLLM's name in answers
	sampleThought = `"reasoning_content":"I look outside."` // the name that the AI SDK and others send back
)

const (
	plainTurn   = sampleUser + "," + sampleReply + "," + sampleUser
	partsTurn   = sampleParts + "," + sampleReply + "," + sampleParts
	resultTurn  = sampleUser + "," + sampleCall + "," + sampleResult
	calledTurn  = resultTurn + "," + sampleReply + "," + sampleUser // the turn after it
	partsCalled = sampleParts + "," + sampleCall + "," + sampleResult + "," + sampleReply + "," + sampleParts
)

// Each lesson is a prefill leg for every start and replica.
const lessonCount = 24

// allLessons returns the shapes, the most frequent first: from openai-python, openai-js and LangChain (tools without
// tool_choice), from LlamaIndex, the AI SDK and opencode (tool_choice auto; langchain-openai 1.7, llama-index-llms-openai 0.8,
// @ai-sdk/openai-compatible 3.0), and from front ends.
func allLessons() []lesson {
	all := []lesson{{true, "", plainTurn, ""}, {false, "", plainTurn, ""}}
	for _, system := range []bool{true, false} {
		for _, tools := range []string{sampleAuto, sampleTools} {
			for _, history := range []string{resultTurn, calledTurn, plainTurn} {
				all = append(all, lesson{system, tools, history, ""})
			}
		}
	}
	return append(all, []lesson{
		{true, "", partsTurn, ""},
		{false, "", partsTurn, ""},
		{true, "", plainTurn, sampleThinks},
		{false, "", plainTurn, sampleThinks},
		{true, "", plainTurn, sampleThought},
		{true, sampleTools, resultTurn, sampleThinks},
		{true, sampleTools, calledTurn, sampleThinks},
		{true, sampleAuto, resultTurn, sampleThought},
		{true, sampleAuto, calledTurn, sampleThought},
		{true, sampleAuto, partsCalled, ""},
	}...)
}

func (l lesson) request(model string) []byte {
	name, err := json.Marshal(model)
	if err != nil { // never
		return nil
	}
	messages := l.history
	if l.thought != "" {
		const assistant = `"role":"assistant",`
		messages = strings.ReplaceAll(messages, assistant, assistant+l.thought+",")
	}
	if l.system {
		messages = sampleSystem + "," + messages
	}
	return []byte(`{"model":` + string(name) + `,` + l.members + `"messages":[` + messages + `],"temperature":0}`)
}
