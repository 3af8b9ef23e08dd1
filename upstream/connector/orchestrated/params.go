package orchestrated

import (
	"carryover/sse/rawjson"
	"carryover/upstream/connector"
)

// withHost returns an engine's params, any JSON object, with another remote_host. All other bytes stay. Errors repeat nothing of raw,
// which is not changed and not held.
func withHost(raw []byte, host string) ([]byte, error) {
	params, err := connector.ParseParams(raw)
	if err != nil {
		return nil, err
	}
	var changes rawjson.Edits
	changes.Set("remote_host", rawjson.Quote(host))
	return params.Rewrite(changes), nil
}
