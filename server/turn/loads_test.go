package turn

import (
	"fmt"
	"testing"

	"carryover/upstream"
	"carryover/upstream/body"
)

func TestLoadFailed(t *testing.T) {
	decode := func(kind upstream.Kind, status int, err error) *upstream.LegError {
		return &upstream.LegError{Role: upstream.RoleDecode, Kind: kind, Status: status, Sent: true, Err: err}
	}
	other := &upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Status, Status: 500}
	for _, row := range []struct {
		leg          *upstream.LegError
		api          body.API
		begun        bool
		failed, only bool
	}{
		{decode(upstream.KVLoad, 0, errKVLoad), body.Chat, true, true, true},
		{decode(upstream.Status, 500, nil), body.Chat, false, true, true},
		{decode(upstream.Status, 500, nil), body.Messages, true, true, true},
		{decode(upstream.Status, 502, nil), body.Chat, false, false, false},
		{decode(upstream.Status, 503, nil), body.Chat, true, false, false},
		{decode(upstream.Status, 400, nil), body.Text, false, false, false},
		{decode(upstream.Timeout, 0, upstream.ErrFirstByteTimeout), body.Chat, false, true, false},
		{decode(upstream.Timeout, 0, other), body.Chat, false, false, false}, // prefill's leg has failed, which runs at the same time
		{decode(upstream.Broken, 0, nil), body.Responses, true, true, true},
		{decode(upstream.Broken, 0, nil), body.Responses, false, false, false},
		{decode(upstream.Broken, 0, nil), body.Chat, true, false, false},
		{decode(upstream.Garbage, 0, errNotJSON), body.Chat, true, false, false},
		{decode(upstream.Dial, 0, nil), body.Chat, false, false, false},
		{decode(upstream.Gone, 0, nil), body.Chat, true, false, false},
	} {
		t.Run(fmt.Sprintf("%s %d of %s, begun %t", row.leg.Kind, row.leg.Status, row.api.Path(), row.begun), func(t *testing.T) {
			if failed, only := loadFailed(row.leg, row.api, row.begun); failed != row.failed || only != row.only {
				t.Errorf("got %t, %t", failed, only)
			}
		})
	}
}

// What a refused rescue says of prefill's blocks.
func TestFrees(t *testing.T) {
	paused := upstream.PausedError(&upstream.Instance{Role: upstream.RoleDecode})
	for _, row := range []struct {
		err  error
		want bool
	}{
		{&upstream.LegError{Kind: upstream.Status, Status: 400}, true},
		{&upstream.LegError{Kind: upstream.Status, Status: 404}, true},
		{paused, true},
		{&upstream.LegError{Kind: upstream.Status, Status: 401}, false},
		{&upstream.LegError{Kind: upstream.Status, Status: 429}, false},
		{&upstream.LegError{Kind: upstream.Status, Status: 500}, false},
		{&upstream.LegError{Kind: upstream.Status, Status: 503}, false},
		{&upstream.LegError{Kind: upstream.Timeout}, false},
		{errTooLate, false},
	} {
		if got := frees(row.err); got != row.want {
			t.Errorf("%v: got %t, want %t", row.err, got, row.want)
		}
	}
}
