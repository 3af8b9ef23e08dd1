package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

type examined struct {
	upstream.Instance
	version   string
	models    []string          // names of its model, none if it does not answer
	roots     map[string]string // by name, the path of its model
	lengths   map[string]int    // by name, max_model_len; 0 if unknown
	start     string            // "" if not reported
	blockSize int
}

func (e *examined) where() string { return e.Role.String() + " " + e.Name }

const (
	askLimit = 5 * time.Second
	// readings of /metrics each have their own connection: API servers that share a port alternate.
	readings    = 4
	mostOfLists = 4 << 20
)

type interview struct {
	*examined
	*doctor

	client *upstream.Client
	engine *fleet.Engine
}

func (i *interview) check(code, what string) bool {
	return i.report.check(i.where(), code, what, "{url}", i.BaseURL, "{name}", i.Name)
}

// ask stops where an answer leaves no further question.
func (i *interview) ask(ctx context.Context) {
	if !i.health(ctx) {
		return
	}
	i.readVersion(ctx)
	if !i.readModels(ctx) {
		return
	}
	i.readStart(ctx)
	if !i.engine.Last().Known() || !i.cfg.Connector.ReusesKV() {
		return
	}
	i.capability(ctx)
	if i.Role == upstream.RolePrefill {
		i.render(ctx)
		if i.cfg.HandsBack() {
			i.check(codeHandBack, i.engine.Last().PrefixCache.Forgets())
		}
	}
}

// fetch gets a path, and retries once. Reading the start of another instance closes all idle connections, even one that this request has
// just got.
func (i *interview) fetch(ctx context.Context, path string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	status, body, err = i.client.Fetch(ctx, &i.Instance, path, "", mostOfLists)
	if err != nil && ctx.Err() == nil && !errors.Is(err, syscall.ECONNREFUSED) {
		status, body, err = i.client.Fetch(ctx, &i.Instance, path, "", mostOfLists)
	}
	return status, body, err
}

func (i *interview) health(ctx context.Context) bool {
	status, _, err := i.fetch(ctx, "/health")
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return i.check(codeUnreachable, i.BaseURL+" refuses connections")
	case status == 0:
		return i.check(codeUnreachable, fmt.Sprintf("%s: %v", i.BaseURL, err))
	}
	i.check(codeUnreachable, "")
	return i.check(codeUnhealthy, problem(status == http.StatusOK, "/health answers %d", status))
}

// readVersion does not judge an instance that reports no version.
func (i *interview) readVersion(ctx context.Context) {
	_, body, err := i.fetch(ctx, "/version")
	var told struct{ Version string }
	if err != nil || json.Unmarshal(body, &told) != nil || told.Version == "" {
		return
	}
	i.version = told.Version
	// Any version passes for a build of one's own; the oldest release in the list is the first that takes the ids of a chat.
	_, known := upstream.ReleaseOf(told.Version)
	i.check(codeVersion, problem(known || !i.cfg.Connector.ReusesKV() || !strings.HasPrefix(told.Version, "0."), "vLLM %s", told.Version))
}

func (i *interview) readModels(ctx context.Context) bool {
	status, body, err := i.fetch(ctx, "/v1/models")
	var told struct {
		Data []struct {
			ID, Root string
			Length   int `json:"max_model_len"`
		}
	}
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return i.check(codeKeyRefused, fmt.Sprintf("/v1/models answers %d", status))
	case err != nil || status != http.StatusOK || json.Unmarshal(body, &told) != nil || len(told.Data) == 0:
		return i.check(codeNoModels, fmt.Sprintf("/v1/models answers %d and lists none", status))
	}
	i.roots, i.lengths = map[string]string{}, map[string]int{}
	for _, model := range told.Data {
		i.models = append(i.models, model.ID)
		i.roots[model.ID], i.lengths[model.ID] = model.Root, model.Length
	}
	return i.check(codeKeyRefused, "") && i.check(codeNoModels, "")
}

func (i *interview) readStart(ctx context.Context) {
	var told []string
	for range readings {
		i.client.Close()
		i.engine.Refresh(ctx)
		if id := i.engine.Fresh().ID(); !slices.Contains(told, id) {
			told = append(told, id)
		}
	}
	last := i.engine.Last()
	i.start, i.blockSize = last.ID(), last.BlockSize()
	several := len(told) > 1
	if i.check(codeStartUnknown, problem(several || told[0] != "", "/metrics has no process_start_time_seconds, as with several API servers, or cannot be read")) {
		i.check(codeStartChanges, problem(!several, "%d readings of /metrics showed %d starts", readings, len(told)))
		i.check(codeClock, clockApart(i.start, time.Now()))
	}
}

// clockSlack is the tolerance of replicas, too.
const clockSlack = 2 * time.Second

// clockApart returns a problem if an engine's start lies ahead of this clock, else "". It cannot see a clock that is behind.
func clockApart(start string, now time.Time) string {
	seconds, err := strconv.ParseFloat(start, 64) // formats such as 1.79e+09
	if err != nil {
		return ""
	}
	if ahead := time.UnixMilli(int64(seconds * 1000)).Sub(now); ahead > clockSlack {
		return fmt.Sprintf("by its own clock it will start in %s", ahead.Round(time.Second))
	}
	return ""
}

func (i *interview) capability(ctx context.Context) {
	uses := i.engine.Last().Capability.Probe(ctx, body.Chat, "")
	if i.check(codeIDsUnproven, problem(uses == facts.Yes || uses == facts.No, "it did not answer the probe for forwarded ids as vLLM does")) {
		i.check(codeIDsIgnored, problem(uses == facts.Yes, "it answers a chat with invalid ids as if it had none"))
	}
}

// render examines whether agents' prompts can be rendered. Without rendering their turns reuse nothing, which is a fault only if there are
// agents.
func (i *interview) render(ctx context.Context) {
	by := "it"
	if i.cfg.Conversation.Render != "" {
		by = i.cfg.Conversation.Render + " (--render)"
	}
	raw, _ := json.Marshal(map[string]any{"model": i.models[0], "max_tokens": 1, "messages": []command.Message{command.NewMessage("user", "Describe the archive.")}}) // strings and numbers only
	req, err := body.ParseRequest(body.Messages, raw)
	if err != nil {
		return
	}
	what := ""
	_, err = i.engine.Last().Prompts.Read(ctx, req, "")
	var leg *upstream.LegError
	switch {
	case errors.Is(err, facts.ErrNoRender) && i.cfg.Conversation.Render == "":
		i.check(codeRenderOff, "it renders no prompts of /v1/messages and /v1/responses: turns of agents reuse nothing of decode")
		return
	case errors.Is(err, facts.ErrNoRender):
		what = by + " does not serve /v1/messages/render"
	case errors.As(err, &leg) && leg.Message != "": // the endpoint's own words
		what = fmt.Sprintf("%s does not render: status %d, %s", by, leg.Status, leg.Message)
	case err != nil:
		what = by + " does not render: " + err.Error()
	}
	if i.check(codeRenderFails, what) {
		i.check(codeRenderOff, "")
	}
}
