package redistest

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// doomed is a test that may end without failing the real one.
type doomed struct{ testing.TB }

func (doomed) Skip(...any) { panic("skipped") }

func (doomed) Fatal(...any) { panic("failed") }

func TestStart_SkipsOnlyWhereItIsAsked(t *testing.T) {
	for skip, want := range map[string]string{"": "failed", "1": "skipped"} {
		t.Setenv("PATH", "")
		t.Setenv("SKIP_MISSING", skip)
		func() {
			defer func() {
				if got := recover(); got != want {
					t.Errorf("SKIP_MISSING=%q: without redis-server it has %v, want %s", skip, got, want)
				}
			}()
			Start(doomed{t})
		}()
	}
}

func TestServing_AnotherServerHasThePort(t *testing.T) {
	one, other := Start(t), Start(t)
	if before := one.Calls("ping"); one.CLI("PING") != "PONG" || one.Calls("ping") != before+1 || one.Calls("hset") != 0 {
		t.Errorf("a ping is counted %d times", one.Calls("ping")-before)
	}
	impostor := &Server{port: one.port, process: other.current()}
	if err := impostor.serving(); err == nil {
		t.Error("a server that another process answers for: got serving, want an error")
	}
}
