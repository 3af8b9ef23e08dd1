package facts

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Bounds of what is taught to an incarnation. A lesson is one /tokenize and one prefill leg of about a hundred tokens.
const (
	maxTaughtModels = 8 // of those that the engine lists first; a list may have hundreds of adapters
	lessonLimit     = 10 * time.Second
	lessonRetry     = 30 * time.Second // after a lesson that had no proper answer
	maxFailures     = 3
)

// Lessons are how an incarnation of prefill learns the parity of common shapes before a turn needs it. Each lesson has
// a short conversation tokenised by /tokenize and prefilled by the completion endpoint, without kv_transfer_params, so
// that nothing stays pinned, and teaches [Parity] what a turn would teach it.
type Lessons struct {
	*asker
	capability *Capability
	parity     *Parity
	prompts    *Prompts

	mu       sync.Mutex // guards the rest
	busy     bool
	given    map[string]int // how many of its lessons a model has behind it
	failures int
	rests    time.Time // until when no lesson is given
}

// Taught is what lessons have shown.
type Taught struct {
	Equal     int      // shapes of which /tokenize is believed from now on
	Different []string // shapes of which it is not
	Unknown   int      // lessons that the engine refused: to a turn of the shape it would do the same
}

// Begin reports whether lessons are left for one of these models. Then the caller gives them with Give, once.
func (l *Lessons) Begin(models []Model) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || l.capability.UsesIDs(body.Chat) == No || l.busy || l.failures >= maxFailures || l.shared.Now().Before(l.rests) {
		return false
	}
	l.busy = slices.ContainsFunc(taught(models), func(m Model) bool { return l.given[m.ID] < lessonCount })
	return l.busy
}

// taught returns the models that have lessons.
func taught(models []Model) []Model { return models[:min(len(models), maxTaughtModels)] }

// Give gives the lessons that are left, one after the other, with our own key. It ends early if ready returns false before a
// lesson, or ctx ends. After an answer that makes no sense, Begin returns false for 30 s, and after three for good. An engine
// that refuses our key, or does not report ids, is taught by turns alone.
func (l *Lessons) Give(ctx context.Context, models []Model, ready func() bool) (shown Taught) {
	defer l.end()
	if l.capability.begun(ctx) != Yes {
		return Taught{} // parity is of no use yet
	}
	all := allLessons()
	for _, m := range taught(models) {
		for n := l.next(m.ID); n < lessonCount; n = l.next(m.ID) {
			if ctx.Err() != nil || !ready() {
				return shown
			}
			err := l.give(ctx, all[n], m.ID, &shown)
			if ctx.Err() != nil {
				return shown
			}
			if !l.note(m.ID, err) {
				return shown
			}
		}
	}
	return shown
}

func (l *Lessons) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy = false
}

// next returns the index of the next lesson for a model.
func (l *Lessons) next(model string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.given[model]
}

var (
	errNoLessons = errors.New("the engine can't be taught")
	errNoModel   = errors.New("the engine does not serve the model any more")
)

// note records how a lesson ended, and reports whether another may follow.
func (l *Lessons) note(model string, err error) (more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.given == nil {
		l.given = map[string]int{}
	}
	if _, known := l.given[model]; !known && len(l.given) >= maxListedModels {
		for other := range l.given { // its lessons are given again
			delete(l.given, other)
			break
		}
	}
	switch {
	case errors.Is(err, errNoModel):
		l.given[model] = lessonCount
	case errors.Is(err, errNoLessons):
		l.failures = maxFailures
		return false
	case err != nil:
		l.failures++
		l.rests = l.shared.Now().Add(lessonRetry)
		return false
	default:
		l.given[model]++
	}
	return true
}

// give gives one lesson. The error says that it had no proper answer.
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

// prefill returns the raw list of the ids that the completion endpoint renders.
func (l *Lessons) prefill(ctx context.Context, req *body.Request) (rendered []byte, err error) {
	leg := req.PrefillBody(body.PrefillEdit{ReturnTokenIDs: true}).Bytes()
	status, answer, err := l.post(ctx, req.API().Path(), leg, "")
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

// refused returns nil for a refusal that concerns the shape alone, such as tools on an engine without
// --enable-auto-tool-choice, or a system message under a template that has none.
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
