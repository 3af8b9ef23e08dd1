package mooncake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// maxEngineID bounds an engine id. vLLM's is a UUID, followed by the rank if there are several.
const maxEngineID = 256

const (
	maxQuery   = 1 << 20
	queryLimit = 2 * time.Second
)

type engine struct {
	rank int
	id   string // remote_engine_id of decode legs
}

// query asks the bootstrap server of a prefill instance for the ids of its engines, which each process draws anew. It returns the engine for a leg:
// its id, and the rank that the leg has to name, "" for none. The server is up before /health answers 200 (measured, 0.32).
func (c *Connector) query(ctx context.Context, instance *upstream.Instance) (id, rank string, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryLimit)
	defer cancel()
	status, body, err := c.Fetch(ctx, c.bootstrap(instance, instance.Host())+"/query", maxQuery)
	var found []engine
	switch {
	case err != nil:
	case status != http.StatusOK:
		err = fmt.Errorf("status %d", status)
	default:
		found, err = parseQuery(body)
	}
	if err != nil {
		return "", "", fmt.Errorf("bootstrap server: %w", err)
	}
	return c.choose(found, instance)
}

// choose returns the engine of the instance's rank; without a rank it takes each engine in turn.
func (c *Connector) choose(found []engine, instance *upstream.Instance) (id, rank string, err error) {
	switch {
	case instance.Ranked:
		at := slices.IndexFunc(found, func(one engine) bool { return one.rank == instance.Rank })
		if at < 0 {
			return "", "", fmt.Errorf("bootstrap server: no engine of data-parallel rank %d", instance.Rank)
		}
		return found[at].id, "", nil
	case len(found) == 1:
		return found[0].id, "", nil
	}
	one := found[int((c.turns.Add(1)-1)%uint32(len(found)))]
	return one.id, strconv.Itoa(one.rank), nil
}

// bootstrap uses http: vLLM serves it without TLS.
func (c *Connector) bootstrap(instance *upstream.Instance, host string) string {
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

// parseQuery parses an answer of /query: an object that maps each rank to an object with engine_id and worker_addr (mooncake_utils.py, EngineEntry).
// Engines may add other members. The engines come by rising rank. Errors repeat nothing of the body.
func parseQuery(body []byte) (found []engine, err error) {
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
		found = append(found, engine{int(rank), id})
	}
	if found == nil {
		return nil, errNoEngines
	}
	slices.SortFunc(found, func(a, b engine) int { return a.rank - b.rank })
	return found, nil
}

func parseEngine(raw []byte) (id string, ok bool) {
	entry, err := rawjson.ParseObject(raw)
	if err != nil {
		return "", false
	}
	id, ok = rawjson.Text(entry.Get("engine_id"))
	workers := entry.Get("worker_addr") // an engine sends no KV until its workers have registered
	return id, ok && len(id) <= maxEngineID && upstream.IsVisible(id) && rawjson.Kind(workers) == '{' && !rawjson.IsEmpty(workers)
}
