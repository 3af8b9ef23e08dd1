package e2e

import (
	"net/http"
	"testing"

	"github.com/tidwall/gjson"
)

// models asks the program what is served.
func (r *rig) models(t *testing.T) gjson.Result {
	t.Helper()
	status, body := askBare(t, r.client, http.MethodGet, r.base+"/v1/models")
	if status != http.StatusOK {
		t.Fatalf("/v1/models: %d %s", status, body)
	}
	return gjson.ParseBytes(body)
}
