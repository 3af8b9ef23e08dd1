package redistest

import (
	"fmt"
	"runtime"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// doomed is a test that may end without failing the real one.
type doomed struct {
	testing.TB
	said string
}

func (d *doomed) Fatal(args ...any) {
	d.said = fmt.Sprint(args...)
	runtime.Goexit()
}

func (d *doomed) Fatalf(format string, args ...any) { d.Fatal(fmt.Sprintf(format, args...)) }

func TestStart_SkipsOnlyWhereItIsAsked(t *testing.T) {
	for _, skip := range []string{"", "1"} {
		t.Run("SKIP_MISSING="+skip, func(t *testing.T) {
			var ended *testing.T
			t.Run("without redis-server", func(t *testing.T) {
				t.Setenv("PATH", "")
				t.Setenv("SKIP_MISSING", skip)
				ended = t
				if skip == "" {
					d := &doomed{TB: t}
					done := make(chan struct{})
					go func() {
						defer close(done)
						Start(d)
					}()
					<-done
					if d.said == "" {
						t.Error("it does not fail")
					}
					return
				}
				Start(t)
			})
			if ended.Skipped() != (skip != "") {
				t.Errorf("it is skipped: %v", ended.Skipped())
			}
		})
	}
}

func TestServing_AnotherServerHasThePort(t *testing.T) {
	one, other := Start(t), Start(t)
	impostor := &Server{port: one.port, process: other.current()}
	if err := impostor.serving(); err == nil {
		t.Error("a server that another process answers for: got serving, want an error")
	}
}
