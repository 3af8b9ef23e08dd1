package convcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// far is a remote store: an empty one that does what its functions say, and answers where it has none.
type far struct {
	Remote
	test func() error
	fail func() error // of any operation
}

func (f *far) err() error {
	if f.fail == nil {
		return nil
	}
	return f.fail()
}

func (f *far) Peek(context.Context, []Key) ([]KeyedBranch, Outcome, error) {
	return nil, Empty, f.err()
}

func (f *far) Put(context.Context, Key, Ticket) ([]Ticket, Outcome, error) {
	return nil, Stored, f.err()
}

func (f *far) Count(context.Context) (int, error) { return 0, f.err() }
func (f *far) Test(context.Context) error         { return f.test() }

// newShared returns a store around a remote one, with the real clock, and what it tells operators.
func newShared(remote Remote) (*Shared, *[]string) {
	var told []string
	return NewShared(remote, SharedConfig{
		Logger: slog.New(slog.DiscardHandler), Tell: func(sentence string) { told = append(told, sentence) },
	}), &told
}

// running runs a store in the bubble until end is called.
func running(t *testing.T, r interface{ Run(context.Context) error }) (end func()) {
	t.Helper()
	cause := errors.New("the end")
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	return func() {
		cancel(cause)
		if got := <-ended; !errors.Is(got, cause) {
			t.Errorf("run: got %v, want %v", got, cause)
		}
	}
}

// What an operation's error makes of a put, and of the five that open the breaker.
func TestShared_JudgesErrors(t *testing.T) {
	cause := errors.New("made up")
	for name, test := range map[string]struct {
		err   error
		put   Outcome
		home  int // conversations in this process
		opens bool
	}{
		"none":                  {nil, Stored, 0, false},
		"any":                   {cause, Unavailable, 0, true},
		"not applied":           {&RemoteError{Err: cause, Unapplied: true}, Stored, 5, true},
		"wrapped":               {fmt.Errorf("put: %w", &RemoteError{Err: cause, Unapplied: true}), Stored, 5, true},
		"of this conversation":  {&RemoteError{Err: cause, Unapplied: true, Shows: ShowsAnswer}, Stored, 5, false},
		"nothing was sent":      {&RemoteError{Err: cause, Unapplied: true, Shows: ShowsNothing}, Stored, 5, false},
		"slow with what is big": {&RemoteError{Err: cause, Shows: ShowsNothing}, Unavailable, 0, false},
	} {
		r, _ := newShared(&far{fail: func() error { return test.err }})
		for n := range 5 {
			if _, got := r.Put(t.Context(), key(n), ticket(n, 10), time.Minute); got != test.put {
				t.Errorf("%s: put: got %v, want %v", name, got, test.put)
			}
		}
		if got := r.breaker.allows(); got == test.opens {
			t.Errorf("%s: operations are sent: got %v, want %v", name, got, !test.opens)
		}
		if got := r.Len(); got != test.home {
			t.Errorf("%s: conversations here: got %d, want %d", name, got, test.home)
		}
	}
}

// A failure that shows nothing is between four that count: they stay in a row, which an answer ends.
func TestShared_WhatShowsNothingIsNotCounted(t *testing.T) {
	cause := errors.New("made up")
	for _, test := range []struct {
		shows Shown
		opens bool
	}{{ShowsNothing, true}, {ShowsAnswer, false}} {
		var err error
		r, _ := newShared(&far{fail: func() error { return err }})
		for n := range 6 {
			err = cause
			if n == 4 {
				err = &RemoteError{Err: cause, Shows: test.shows}
			}
			r.Peek(t.Context(), []Key{key(1)})
		}
		if got := r.breaker.allows(); got == test.opens {
			t.Errorf("shown %v: operations are sent: got %v, want %v", test.shows, got, !test.opens)
		}
	}
}

func TestShared_TestsAgainEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var far far
		r, _ := newShared(&far)
		var at []float64 // seconds
		well, fails, began := 0, 8, time.Now()
		far.test = func() error {
			if r.breaker.allows() {
				well++
				return nil
			}
			at = append(at, time.Since(began).Seconds())
			if fails--; fails >= 0 {
				return errors.New("no answer")
			}
			return nil
		}
		tested := func(want ...float64) {
			t.Helper()
			<-time.After(time.Hour)
			synctest.Wait()
			if !slices.Equal(at, want) {
				t.Errorf("tested after %v s, want %v", at, want)
			}
			at, began = nil, time.Now()
		}
		defer running(t, r)()
		tested()
		if well < 700 || well > 720 {
			t.Errorf("tested %d times in an hour in which all was well, want every 5 s", well)
		}
		r.breaker.set(true)
		tested(1, 3, 7, 15, 31, 61, 91, 121, 151)
		r.breaker.set(true) // and from the beginning when it fails anew
		tested(1)
	})
}

// A server that is full, or that refuses a script, answers look-ups all the same.
func TestShared_NoticesWhatLookUpsDoNotShow(t *testing.T) {
	for _, test := range []struct {
		err   error
		after time.Duration
		want  string
		told  string
	}{
		{errors.New("OOM command not allowed"), 10 * time.Second, "down", "Redis does not work"},
		{fmt.Errorf("%w: its ACL must allow", ErrRemoteForbids), 5 * time.Second, "refused", "Redis refuses a command"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, told := newShared(&far{test: func() error { return test.err }})
			end := running(t, r)
			for range int(test.after/time.Second)*10 - 1 {
				<-time.After(time.Second / 10)
				if _, got := r.Peek(t.Context(), []Key{key(1)}); got != Empty {
					t.Errorf("peek: got %v, want %v", got, Empty)
				}
			}
			if got := r.State().String(); got != "up" || !r.breaker.allows() {
				t.Errorf("%v: before %v: got %v, want up", test.err, test.after, got)
			}
			<-time.After(time.Second)
			if got := r.State().String(); got != test.want || r.breaker.allows() {
				t.Errorf("%v: after %v: got %v, want %v and nothing shared", test.err, test.after, got, test.want)
			}
			end()
			if len(*told) != 1 || !strings.HasPrefix((*told)[0], test.told) {
				t.Errorf("%v: operators are told %q, want once %q", test.err, *told, test.told)
			}
		})
	}
}

// A server that is down, then refuses us, and then answers.
func TestShared_TellsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := 0
		r, told := newShared(&far{test: func() error {
			if tests++; tests < 3 {
				return ErrRemoteForbids
			}
			return nil
		}})
		end := running(t, r)
		r.breaker.set(true)
		<-time.After(2 * time.Second)
		if got := r.State(); got != RemoteRefused {
			t.Errorf("state: got %v, want %v", got, RemoteRefused)
		}
		<-time.After(time.Minute)
		end()
		if got := strings.Join(*told, " "); r.State() != RemoteUp || got != "Redis does not work: new tickets stay in this replica until it does. "+
			"Redis refuses a command that is needed: new tickets stay in this replica until an operator fixes that. Redis answers: tickets are shared among replicas." {
			t.Errorf("operators are told %q, in state %v", got, r.State())
		}
	})
}

// A test that failed before another succeeded is over: Run does not take it for news.
func TestShared_RunForgetsWhatCheckMended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := errors.New("no answer")
		r, told := newShared(&far{test: func() error { return err }})
		if r.Check(t.Context()) == nil {
			t.Error("check of no server: got no error")
		}
		err = nil
		if err := r.Check(t.Context()); err != nil {
			t.Error(err)
		}
		end := running(t, r)
		<-time.After(time.Second)
		if end(); r.State() != RemoteUp || len(*told) != 0 {
			t.Errorf("state: got %v, operators are told %q, want %v and nothing", r.State(), *told, RemoteUp)
		}
	})
}

func TestShared_RunSweeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := newShared(&far{test: func() error { return errors.New("no answer") }})
		defer running(t, r)()
		r.breaker.set(true)
		if _, got := r.Put(t.Context(), key(1), ticket(1, 10), time.Second); got != Stored {
			t.Errorf("put: got %v, want %v", got, Stored)
		}
		<-time.After(2 * time.Minute)
		if got := r.Len(); got != 0 {
			t.Errorf("conversations after their end: got %d, want 0", got)
		}
	})
}

// endsAfter is a context that ends after it has been looked at so many times.
type endsAfter struct {
	context.Context
	looks int
}

// Err implements context.Context.
func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// What Redis refused at the very end of its time is kept all the same.
func TestShared_PutGoesHomeWithoutTimeLeft(t *testing.T) {
	r, _ := newShared(&far{})
	r.breaker.set(true)
	tk := ticket(1, 10)
	if _, got := r.Put(&endsAfter{Context: t.Context(), looks: 1}, key(1), tk, time.Minute); got != Stored {
		t.Errorf("put: got %v, want %v", got, Stored)
	}
	if _, got := r.Take(t.Context(), key(1), tk.ID); got != Taken {
		t.Errorf("take: got %v, want %v", got, Taken)
	}
}
