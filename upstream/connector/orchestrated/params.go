package orchestrated

import (
	"carryover/sse/rawjson"
	"carryover/upstream/connector"
)

// withHost returns an engine's params, any JSON object, with remote_host set to host. All other bytes stay. It neither changes nor keeps
// raw, and errors repeat nothing of it.
func withHost(raw []byte, host string) ([]byte, error) {
	params, err := connector.ParseParams(raw)
	if err != nil {
		return nil, err
	}
	var changes rawjson.Edits
	changes.Set("remote_host", rawjson.Quote(host))
	return params.Rewrite(changes), nil
}
