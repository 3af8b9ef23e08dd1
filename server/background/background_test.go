package background_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/background"
)

// A panic ends one round of a task, and abandoning the group ends the task with a cause.
func TestGroup_TasksSurvivePanicsAndEndWhenAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := background.New(slog.New(slog.DiscardHandler))
		early := make(chan struct{})
		var rounds atomic.Int64
		g.Repeat("task", time.Minute, early, func(context.Context) {
			if rounds.Add(1) == 1 {
				panic("defect")
			}
		})
		early <- struct{}{}
		synctest.Wait()
		if n := rounds.Load(); n != 1 {
			t.Errorf("%d rounds, want one at once when it is asked for early", n)
		}
		<-time.After(2*time.Minute + time.Second)
		synctest.Wait()
		if n := rounds.Load(); n != 3 {
			t.Errorf("%d rounds, want one more in each of two periods", n)
		}
		g.Abandon()
		g.Wait()
		if cause := context.Cause(g.Context()); !errors.Is(cause, background.ErrShuttingDown) {
			t.Errorf("abandoned with %v, want %v", cause, background.ErrShuttingDown)
		}
	})
}

// A panic in work that outlives a client ends neither the process nor other work.
func TestGroup_WorkSurvivesPanics(t *testing.T) {
	g := background.New(slog.New(slog.DiscardHandler))
	done := make(chan struct{})
	g.Run("turn", "a", func() { panic("defect") })
	g.Run("turn", "b", func() { close(done) })
	g.Wait()
	<-done
}
