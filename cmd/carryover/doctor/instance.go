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

// interview asks one instance about itself, with the program's own client and fleet.
type interview struct {
	*examined

	report *doctorReport
	client *upstream.Client
	engine *fleet.Engine
	tokens bool // the token proof applies to it
	probes bool // it may be sent completions
}

// ask asks whatever can still be asked after each answer.
func (i *interview) ask(ctx context.Context) {
	if i.answers = i.health(ctx); !i.answers {
		return
	}
	i.readVersion(ctx)
	if !i.readModels(ctx) {
		return
	}
	i.readStart(ctx)
	if incarnation := i.engine.Last(); incarnation.Known() && i.tokens && i.probes {
		i.capability(ctx, incarnation)
	}
}

// fetch gets a path of the instance. Reading the starts of another instance closes the idle connections of all, also one that has just
// been given to this request, so that what fails is asked once more.
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
		return i.report.check(i.where(), codeUnreachable, i.BaseURL+" refuses connections", "{url}", i.BaseURL)
	case status == 0:
		return i.report.check(i.where(), codeUnreachable, fmt.Sprintf("%s: %v", i.BaseURL, err), "{url}", i.BaseURL)
	case status != http.StatusOK:
		return i.report.check(i.where(), codeUnhealthy, fmt.Sprintf("/health answers %d", status), "{url}", i.BaseURL)
	}
	i.report.holds(i.where(), codeUnreachable, "")
	return i.report.check(i.where(), codeUnhealthy, "")
}

// oldestForTokens is the first vLLM that takes the ids of a chat (kv_transfer_params.prompt_token_ids).
const oldestForTokens = "0.28"

// readVersion reads the version of vLLM. An instance that does not report it is not judged.
func (i *interview) readVersion(ctx context.Context) {
	_, body, err := i.fetch(ctx, "/version")
	var told struct{ Version string }
	if err != nil || json.Unmarshal(body, &told) != nil || told.Version == "" {
		return
	}
	i.version = told.Version
	what := ""
	if i.tokens && olderThan(told.Version, oldestForTokens) {
		what = "vLLM " + told.Version
	}
	i.report.check(i.where(), codeVersion, what)
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

func (i *interview) readModels(ctx context.Context) bool {
	status, body, err := i.fetch(ctx, "/v1/models")
	var told struct{ Data []struct{ ID, Root string } }
	switch {
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return i.report.check(i.where(), codeKeyRefused, fmt.Sprintf("/v1/models answers %d", status))
	case err != nil || status != http.StatusOK || json.Unmarshal(body, &told) != nil || len(told.Data) == 0:
		return i.report.check(i.where(), codeNoModels, fmt.Sprintf("/v1/models answers %d and lists none", status), "{url}", i.BaseURL)
	}
	i.report.holds(i.where(), codeKeyRefused, "")
	i.report.holds(i.where(), codeNoModels, "")
	i.roots = map[string]string{}
	for _, model := range told.Data {
		i.models = append(i.models, model.ID)
		i.roots[model.ID] = model.Root
	}
	return true
}

// readStart reads more than once which incarnation of the engine is alive.
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
	i.start, i.blockSize, i.forgets = last.ID(), last.BlockSize(), last.PrefixCache.Forgets()
	switch {
	case len(told) == 1 && told[0] == "":
		i.report.found(i.where(), codeStartUnknown, "/metrics has no process_start_time_seconds, as of several API servers, or of none that can be read")
		return
	case len(told) > 1:
		i.report.found(i.where(), codeStartChanges, fmt.Sprintf("%d readings of /metrics told %d starts", readings, len(told)))
	default:
		i.report.holds(i.where(), codeStartChanges, "")
	}
	i.report.holds(i.where(), codeStartUnknown, "")
	i.report.check(i.where(), codeClock, clockApart(i.start, time.Now()), "{where}", "this host and that of "+i.Name)
	what := ""
	if i.blockSize == 0 {
		what = "/metrics has no block_size, or several"
	}
	i.report.check(i.where(), codeBlockSize, what)
}

// capability says whether the engine uses the ids that it is sent, as the fleet's own probe finds.
func (i *interview) capability(ctx context.Context, incarnation *fleet.Incarnation) {
	switch incarnation.Capability.Probe(ctx, body.Chat, "") {
	case facts.Yes:
		i.report.holds(i.where(), codeIDsIgnored, "it computes the ids that it is sent, so that the token proof is in force")
		i.report.holds(i.where(), codeIDsUnproven, "")
	case facts.No:
		i.report.found(i.where(), codeIDsIgnored, "it answers a chat with ids that are none as if there were none")
	default:
		i.report.found(i.where(), codeIDsUnproven, "the probe for forwarded ids was not answered as vLLM does")
	}
}
