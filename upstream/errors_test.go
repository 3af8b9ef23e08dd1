package upstream

import "testing"

// Only the engine's own words say that nobody reads what was sent: a 503 may be that of a proxy in front, with the leg under way behind it.
func TestLegError_Paused(t *testing.T) {
	const words = "Generation is paused. Please retry after it resumes."
	for _, row := range []struct {
		err  LegError
		want bool
	}{
		{LegError{Kind: Status, Status: 503, Fault: Fault{Message: words, Type: "ServiceUnavailableError"}}, true},
		{LegError{Kind: Status, Status: 503, Fault: Fault{Message: words, Type: "overloaded_error"}}, true},
		{LegError{Kind: Status, Status: 500, Fault: Fault{Message: words}}, true}, // told within a stream
		{LegError{Kind: Status, Status: 503}, false},
		{LegError{Kind: Status, Status: 503, Fault: Fault{Message: "upstream connect error"}}, false},
		{LegError{Kind: Broken, Fault: Fault{Message: words}}, false},
	} {
		if got := row.err.Paused(); got != row.want {
			t.Errorf("%+v: %t, want %t", row.err, got, row.want)
		}
	}
}
