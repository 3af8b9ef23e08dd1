package apierror

import (
	"encoding/json"
	"strings"
	"testing"

	"carryover/upstream/body"
)

func TestNoModel_IsShapedAsVLLMShapesIt(t *testing.T) {
	want := "{\"error\":{\"message\":\"The model `x` does not exist.\",\"type\":\"NotFoundError\",\"param\":\"model\",\"code\":\"model_not_found\"}}"
	if e := NoModel("x"); string(e.Body(body.Chat)) != want || e.Status != 404 {
		t.Errorf("got %d %s, want 404 %s", e.Status, e.Body(body.Chat), want)
	}
	if e := NoModel(strings.Repeat("é", 1<<20)); len(e.Message) > 300 || !json.Valid(e.Body(body.Chat)) {
		t.Errorf("got a message of %d bytes", len(e.Message))
	}
}
