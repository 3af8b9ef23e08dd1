package discovery

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"carryover/upstream"
)

// What a question keeps, against what has come in a row: all sequences of six look-ups after one that had an instance.
func TestQuestion_KeepsItsAnswerInDoubt(t *testing.T) {
	const records, none, failure = 0, 1, 2
	instance := upstream.Instance{Name: "10.0.0.1:8000"}
	for sequence := range 729 {
		var next int
		q := &question{ask: func(context.Context, *net.Resolver) ([]upstream.Instance, error) {
			switch next {
			case records:
				return []upstream.Instance{instance}, nil
			case none:
				return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
			}
			return nil, errors.New("server misbehaving")
		}}
		var asked []int
		there, row := true, 0
		q.put(t.Context(), nil, slog.New(slog.DiscardHandler))
		for rest, n := sequence, 0; n < 6; rest, n = rest/3, n+1 {
			next = rest % 3
			asked = append(asked, next)
			q.put(t.Context(), nil, slog.New(slog.DiscardHandler))
			switch next {
			case records:
				there, row = true, 0
			case none:
				row++
				there = there && row < 3
			case failure:
				row = 0
			}
			if got := len(q.answer) == 1; got != there {
				t.Fatalf("after %v (0 records, 1 none, 2 failure) the instance is there: %t, want %t", asked, got, there)
			}
		}
	}
}

// One domain of the search list that fails must neither hide an answer nor turn into one.
func TestQuestion_InsistsOnAnAnswer(t *testing.T) {
	failure, notFound, late := errors.New("server misbehaving"), &net.DNSError{IsNotFound: true}, &net.DNSError{IsTimeout: true}
	instance := upstream.Instance{Name: "10.0.0.1:8000"}
	for name, tc := range map[string]struct {
		strict, lenient error // nil: the instance
		answers, fails  bool
	}{
		"an answer":                             {nil, failure, true, false},
		"no such name":                          {notFound, nil, false, false},
		"addresses of the other family":         {&net.AddrError{Err: "no suitable address found"}, nil, false, false},
		"a failure, and another domain has it":  {failure, nil, true, false},
		"a failure, and no other domain has it": {failure, notFound, false, true},
		"failures":                              {failure, failure, false, true},
		"time-outs":                             {late, late, false, true},
	} {
		q := &question{ask: func(_ context.Context, r *net.Resolver) ([]upstream.Instance, error) {
			err := tc.lenient
			if r.StrictErrors {
				err = tc.strict
			}
			if err != nil {
				return nil, err
			}
			return []upstream.Instance{instance}, nil
		}}
		q.put(t.Context(), nil, slog.New(slog.DiscardHandler))
		if answers := len(q.answer) == 1; answers != tc.answers || q.failed != tc.fails {
			t.Errorf("%s: answered %t, failed %t, want %t, %t", name, answers, q.failed, tc.answers, tc.fails)
		}
	}
}

// What DNS has is used within 30 s, also where each look-up takes as long as it may.
func TestDNS_ANewAddressIsUsedWithinThirtySeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		name, begun := "old", time.Now()
		var changed time.Time
		d := &DNS{Logger: slog.New(slog.DiscardHandler), interval: dnsInterval}
		hanging := &question{ask: func(ctx context.Context, _ *net.Resolver) ([]upstream.Instance, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		answered := &question{ask: func(context.Context, *net.Resolver) ([]upstream.Instance, error) {
			return []upstream.Instance{{Name: name}}, nil
		}}
		d.follow(ctx, []*question{hanging, answered}, func(all []upstream.Instance) {
			if len(all) != 1 || all[0].Name != name {
				t.Errorf("set(%+v), want %s", all, name)
			}
			if name == "new" {
				if took := time.Since(changed); took > 30*time.Second {
					t.Errorf("the new address took %s", took)
				}
				cancel()
				return
			}
			if took := time.Since(begun); took > lookUpLimit {
				t.Errorf("the first list took %s", took)
			}
			name, changed = "new", time.Now()
		})
	})
}
