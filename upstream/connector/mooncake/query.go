package mooncake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// maxEngineID is the greatest length of an engine id. vLLM's id is a UUID, followed by the rank if there are several.
const maxEngineID = 256

// engines are the engines of one incarnation of a prefill instance, one for each data-parallel rank.
type engines struct {
	list []engine // by rising rank, not empty
	next atomic.Uint32
}

// engine is the engine of one data-parallel rank.
type engine struct {
	rank int
	id   string // remote_engine_id of decode legs
}

// pick returns the id of the engine for a leg to the instance. If the instance stands for one rank, it is the engine of this rank, else
// each engine in turn. rank is the rank that the leg has to name, "" if the leg need not name one.
func (e *engines) pick(instance *upstream.Instance) (id, rank string, err error) {
	switch {
	case instance.Ranked:
		at := slices.IndexFunc(e.list, func(one engine) bool { return one.rank == instance.Rank })
		if at < 0 {
			return "", "", fmt.Errorf("bootstrap server: no engine of data-parallel rank %d", instance.Rank)
		}
		return e.list[at].id, "", nil
	case len(e.list) == 1:
		return e.list[0].id, "", nil
	}
	one := e.list[int((e.next.Add(1)-1)%uint32(len(e.list)))]
	return one.id, strconv.Itoa(one.rank), nil
}

// introduce asks the bootstrap server of a prefill instance for the ids of its engines. The server is up before /health answers 200
// (measured, 0.32). A decode instance is not asked.
func (c Connector) introduce(ctx context.Context, instance *upstream.Instance, fetch upstream.Fetch) (any, error) {
	if instance.Role != upstream.RolePrefill {
		return nil, nil
	}
	status, body, err := fetch(ctx, c.bootstrap(instance, instance.Host()), "/query")
	switch {
	case err != nil:
		return nil, fmt.Errorf("bootstrap server: %w", err)
	case status != http.StatusOK:
		return nil, fmt.Errorf("bootstrap server: status %d", status)
	}
	found, err := parseQuery(body)
	if err != nil {
		return nil, fmt.Errorf("bootstrap server: %w", err)
	}
	if _, _, err := found.pick(instance); err != nil {
		return nil, err
	}
	return found, nil
}

// bootstrap returns the base URL of a prefill instance's bootstrap server at a host. vLLM serves it without TLS.
func (c Connector) bootstrap(instance *upstream.Instance, host string) string {
	port := instance.KVPort
	if port == 0 {
		port = c.BootstrapPort
	}
	return "http://" + net.JoinHostPort(host, strconv.Itoa(port))
}

var (
	errNoEngines = errors.New("no engine is registered")
	errRank      = errors.New("a data-parallel rank must be a whole number from 0 to 65535")
	errEngine    = errors.New("an engine must be an object with an engine_id of at most 256 printable ASCII characters without spaces, and with worker_addr")
)

// parseQuery parses an answer of /query: an object that maps each rank to an object with engine_id and worker_addr
// (mooncake_utils.py, EngineEntry). Other members are allowed, because engines add their own. Errors repeat nothing of the body.
func parseQuery(body []byte) (*engines, error) {
	found := &engines{}
	all, err := rawjson.ParseObject(body)
	if err != nil {
		return nil, err
	}
	for key, value := range all.Members() {
		rank, err := strconv.ParseUint(string(key), 10, 16)
		if err != nil || strconv.FormatUint(rank, 10) != string(key) {
			return nil, errRank
		}
		id, ok := parseEngine(value)
		if !ok {
			return nil, errEngine
		}
		found.list = append(found.list, engine{int(rank), id})
	}
	if found.list == nil {
		return nil, errNoEngines
	}
	slices.SortFunc(found.list, func(a, b engine) int { return a.rank - b.rank })
	return found, nil
}

func parseEngine(raw []byte) (id string, ok bool) {
	entry, err := rawjson.ParseObject(raw)
	if err != nil {
		return "", false
	}
	id, ok = rawjson.Text(entry.Get("engine_id"))
	workers := entry.Get("worker_addr") // an engine sends no KV until its workers have registered
	return id, ok && id != "" && len(id) <= maxEngineID && printable(id) && workers != nil && workers[0] == '{' && !rawjson.IsEmpty(workers)
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < '!' || r > '~' })
}
