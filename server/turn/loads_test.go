package turn

import (
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

// decodeLeg is how a leg of decode ends that was sent.
func decodeLeg(kind upstream.Kind, status int, err error) *upstream.LegError {
	return &upstream.LegError{Role: upstream.RoleDecode, Kind: kind, Status: status, Sent: true, Err: err}
}

func TestLoadFailed(t *testing.T) {
	other := &upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Status, Status: 500}
	for _, row := range []struct {
		leg          *upstream.LegError
		api          body.API
		begun        bool
		failed, only bool
	}{
		{decodeLeg(upstream.KVLoad, 0, nil), body.Chat, true, true, true},
		{decodeLeg(upstream.Status, 500, nil), body.Chat, false, true, true},
		{decodeLeg(upstream.Status, 500, nil), body.Messages, true, true, true},
		{decodeLeg(upstream.Status, 502, nil), body.Chat, false, false, false},
		{decodeLeg(upstream.Status, 503, nil), body.Chat, true, false, false},
		{decodeLeg(upstream.Status, 400, nil), body.Text, false, false, false},
		{decodeLeg(upstream.Timeout, 0, upstream.ErrFirstByteTimeout), body.Chat, false, true, false},
		{decodeLeg(upstream.Timeout, 0, other), body.Chat, false, false, false}, // prefill's leg has failed, which runs at the same time
		{decodeLeg(upstream.Broken, 0, nil), body.Responses, true, true, true},
		{decodeLeg(upstream.Broken, 0, nil), body.Responses, false, false, false},
		{decodeLeg(upstream.Broken, 0, nil), body.Chat, true, false, false},
		{decodeLeg(upstream.Garbage, 0, nil), body.Chat, true, false, false},
		{decodeLeg(upstream.Dial, 0, nil), body.Chat, false, false, false},
		{decodeLeg(upstream.Gone, 0, nil), body.Chat, true, false, false},
	} {
		if failed, only := loadFailed(row.leg, row.api, row.begun); failed != row.failed || only != row.only {
			t.Errorf("%v of %s, begun %t: got %t, %t", row.leg, row.api.Path(), row.begun, failed, only)
		}
	}
}

// What a refused rescue says of prefill's blocks.
func TestFrees(t *testing.T) {
	for status, want := range map[int]bool{400: true, 404: true, 401: false, 429: false, 500: false, 503: false} {
		if got := frees(decodeLeg(upstream.Status, status, nil)); got != want {
			t.Errorf("%d: got %t, want %t", status, got, want)
		}
	}
	if !frees(upstream.PausedError(&upstream.Instance{Role: upstream.RoleDecode})) || frees(decodeLeg(upstream.Timeout, 0, nil)) {
		t.Error("a paused engine frees, and silence does not")
	}
}
