package keep

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/talk"
)

func TestPlan_WhatWorkloadsAreMadeOf(t *testing.T) {
	const over = 20 * time.Minute
	for _, w := range workloads() {
		list := w.plan(1, over)
		if !reflect.DeepEqual(list, w.plan(1, over)) {
			t.Errorf("%s: a plan differs from itself", w.name)
		}
		long, tools, calls, results := 0, 0, 0, 0
		for i, c := range list {
			if c.ID != "" || c.Begins > over || len(c.Turns) == 0 || len(c.Turns) > mostTurns {
				t.Fatalf("%s: conversation %d has %d turns, begins at %v", w.name, i, len(c.Turns), c.Begins)
			}
			if len(c.Turns) > 1 {
				long++
			}
			if c.Tools {
				tools++
			}
			for n, q := range c.Turns {
				called := strings.Contains(q.Text, "CALL ")
				if called == (q.Least > 0) || called && !c.Tools || (q.Think > 0) != (n > 0) {
					t.Fatalf("%s: turn %d of conversation %d: think %v, at least %d tokens", w.name, n, i, q.Think, q.Least)
				}
				if called {
					calls++
				}
				if q.Result {
					results++
					if !strings.Contains(c.Turns[n-1].Text, "CALL ") {
						t.Fatalf("%s: a result of no call", w.name)
					}
				}
			}
			last := c.Turns[len(c.Turns)-1]
			if strings.Contains(last.Text, "CALL ") {
				t.Errorf("%s: a conversation ends with a call", w.name)
			}
		}
		if calls != results {
			t.Errorf("%s: %d calls, %d results", w.name, calls, results)
		}
		if all := w.shares[0] + w.shares[1] + w.shares[2]; w.shares[1]+w.shares[2] == 0 && long > 0 || w.shares[2] == all && tools != len(list) || w.shares[2] == 0 && tools > 0 {
			t.Errorf("%s: %d of %d are longer than a turn, %d have tools", w.name, long, len(list), tools)
		}
	}
}

func TestPolicies_WaitInTheClockOfTheProxy(t *testing.T) {
	all := policies()
	flags := func(name string) string {
		at := slices.IndexFunc(all, func(p policy) bool { return p.name == name })
		return strings.Join(all[at].flags(talk.Clock(10)), " ")
	}
	for name, want := range map[string]string{"5 s": "--hand-back idle --hand-back-after 500ms", learnt: ""} {
		if got := flags(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
