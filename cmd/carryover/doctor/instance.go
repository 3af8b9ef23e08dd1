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

	"carryover/cmd/carryover/app"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// examined is what an instance has reported about itself.
type examined struct {
	upstream.Instance
	answers   bool // its health is good
	version   string
	models    []string          // the names under which it serves its model
	roots     map[string]string // by name, the path that it was started with
	start     string            // "" if it does not report it
	blockSize int
	forgets   string // why it does not keep what is handed back to it, "" if it does
}

// Bounds of requests to an instance.
const (
	askLimit = 5 * time.Second
	// readings of /metrics, each on a connection of its own: API servers that share a port take turns.
	readings    = 4
	mostOfLists = 4 << 20
)

// instance asks one instance about itself, with the program's own client and fleet.
func (d *doctor) instance(ctx context.Context, p *app.Proxy, engine *fleet.Engine, e *examined) {
	if e.answers = d.health(ctx, p, e); !e.answers {
		return
	}
	d.version(ctx, p, e)
	if !d.models(ctx, p, e) {
		return
	}
	d.start(ctx, p, engine, e)
	if incarnation := engine.Last(); incarnation.Known() && d.asksTokens() && !d.options.noTurns {
		d.capability(ctx, incarnation, e)
	}
}

// fetch gets a path of the instance. Reading the starts of another instance closes the idle connections of all, also one that has just
// been given to this request, so that what fails is asked once more.
func (e *examined) fetch(ctx context.Context, p *app.Proxy, path string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	status, body, err = p.Client.Fetch(ctx, &e.Instance, path, "", mostOfLists)
	if err != nil && ctx.Err() == nil && !errors.Is(err, syscall.ECONNREFUSED) {
		status, body, err = p.Client.Fetch(ctx, &e.Instance, path, "", mostOfLists)
	}
	return status, body, err
}

func (d *doctor) health(ctx context.Context, p *app.Proxy, e *examined) bool {
	status, _, err := e.fetch(ctx, p, "/health")
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return d.report.check(e.where(), codeUnreachable, e.BaseURL+" refuses connections", "{url}", e.BaseURL)
	case status == 0:
		return d.report.check(e.where(), codeUnreachable, fmt.Sprintf("%s: %v", e.BaseURL, err), "{url}", e.BaseURL)
	case status != http.StatusOK:
		return d.report.check(e.where(), codeUnhealthy, fmt.Sprintf("/health answers %d", status), "{url}", e.BaseURL)
	}
	d.report.holds(e.where(), codeUnreachable, "")
	return d.report.check(e.where(), codeUnhealthy, "")
}

// oldestForTokens is the first vLLM that takes the ids of a chat (kv_transfer_params.prompt_token_ids).
const oldestForTokens = "0.28"

// version reads the version of vLLM. An instance that does not report it is not judged.
func (d *doctor) version(ctx context.Context, p *app.Proxy, e *examined) {
	_, body, err := e.fetch(ctx, p, "/version")
	var told struct{ Version string }
	if err != nil || json.Unmarshal(body, &told) != nil || told.Version == "" {
		return
	}
	e.version = told.Version
	what := ""
	if d.asksTokens() && olderThan(told.Version, oldestForTokens) {
		what = "vLLM " + told.Version
	}
	d.report.check(e.where(), codeVersion, what)
}

// olderThan compares the first two numbers of versions; one that has none is not older.
func olderThan(version, than string) bool {
	numbers := func(text string) (list []int) {
		for part := range strings.SplitSeq(strings.TrimPrefix(text, "v"), ".") {
			n, err := strconv.Atoi(part)
			if err != nil || len(list) == 2 {
				break
			}
			list = append(list, n)
		}
		return list
	}
	have := numbers(version)
	return len(have) == 2 && slices.Compare(have, numbers(than)) < 0
}

func (d *doctor) models(ctx context.Context, p *app.Proxy, e *examined) bool {
	status, body, err := e.fetch(ctx, p, "/v1/models")
	var told struct{ Data []struct{ ID, Root string } }
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return d.report.check(e.where(), codeKeyRefused, fmt.Sprintf("/v1/models answers %d", status))
	case err != nil || status != http.StatusOK || json.Unmarshal(body, &told) != nil || len(told.Data) == 0:
		return d.report.check(e.where(), codeNoModels, fmt.Sprintf("/v1/models answers %d and lists none", status), "{url}", e.BaseURL)
	}
	d.report.holds(e.where(), codeKeyRefused, "")
	d.report.holds(e.where(), codeNoModels, "")
	e.roots = map[string]string{}
	for _, model := range told.Data {
		e.models = append(e.models, model.ID)
		e.roots[model.ID] = model.Root
	}
	return true
}

// start reads more than once which incarnation of the engine is alive.
func (d *doctor) start(ctx context.Context, p *app.Proxy, engine *fleet.Engine, e *examined) {
	var told []string
	for range readings {
		p.Client.Close()
		engine.Refresh(ctx)
		if id := engine.Fresh().ID(); !slices.Contains(told, id) {
			told = append(told, id)
		}
	}
	last := engine.Last()
	e.start, e.blockSize, e.forgets = last.ID(), last.BlockSize(), last.PrefixCache.Forgets()
	switch {
	case len(told) == 1 && told[0] == "":
		d.report.found(e.where(), codeStartUnknown, "/metrics has no process_start_time_seconds, as of several API servers, or of none that can be read")
		return
	case len(told) > 1:
		d.report.found(e.where(), codeStartChanges, fmt.Sprintf("%d readings of /metrics told %d starts", readings, len(told)))
	default:
		d.report.holds(e.where(), codeStartChanges, "")
	}
	d.report.holds(e.where(), codeStartUnknown, "")
	d.report.check(e.where(), codeClock, clockApart(e.start, time.Now()), "{where}", "this host and that of "+e.Name)
	what := ""
	if e.blockSize == 0 {
		what = "/metrics has no block_size, or several"
	}
	d.report.check(e.where(), codeBlockSize, what)
}

// capability says whether the engine uses the ids that it is sent, as the fleet's own probe finds.
func (d *doctor) capability(ctx context.Context, incarnation *fleet.Incarnation, e *examined) {
	switch incarnation.Capability.Probe(ctx, body.Chat, "") {
	case facts.Yes:
		d.report.holds(e.where(), codeIDsIgnored, "it computes the ids that it is sent, so that the token proof is in force")
		d.report.holds(e.where(), codeIDsUnproven, "")
	case facts.No:
		d.report.found(e.where(), codeIDsIgnored, "it answers a chat with ids that are none as if there were none")
	default:
		d.report.found(e.where(), codeIDsUnproven, "the probe for forwarded ids was not answered as vLLM does")
	}
}
