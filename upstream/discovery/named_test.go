package discovery_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/discovery"
)

func TestNamed_AnInstanceIsSetWhenAdmitReturns(t *testing.T) {
	named := discovery.NewNamed(patterns(t, "10.0.0.0/8:8000"))
	w := watch(t, named)
	w.want(t, "")
	name, err := named.Admit("10.0.0.1:8000")
	if err != nil || len(w.lists) != 1 {
		t.Fatalf("Admit = %q, %v with %d lists set, want one", name, err, len(w.lists))
	}
	want := upstream.Instance{Name: name, BaseURL: "http://10.0.0.1:8000", Role: upstream.RolePrefill}
	if all := <-w.lists; len(all) != 1 || all[0] != want {
		t.Errorf("set(%+v), want %+v", all, want)
	}
	if _, err := named.Admit(name); err != nil {
		t.Error(err)
	}
	if _, err := named.Admit("10.0.0.2:8001"); err == nil || strings.Contains(err.Error(), "10.0.0.0") {
		t.Errorf("Admit = %v, want an error that tells no pattern", err)
	}
	w.quiet(t)
}

func TestNamed_DropsWhatNoRequestNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := discovery.NewNamed(patterns(t, "*.local:80"))
		w := watch(t, named)
		w.want(t, "")
		admit(t, named, "idle.local:80")
		admit(t, named, "busy.local:80")
		w.want(t, "idle.local:80")
		w.want(t, "idle.local:80 busy.local:80")
		for range 9 {
			<-time.After(time.Minute)
			admit(t, named, "busy.local:80")
		}
		synctest.Wait()
		w.quiet(t) // nine minutes
		<-time.After(2 * time.Minute)
		synctest.Wait()
		w.want(t, "busy.local:80")
		<-time.After(12 * time.Minute)
		synctest.Wait()
		w.want(t, "")
		admit(t, named, "idle.local:80")
		w.want(t, "idle.local:80")
	})
}

func TestNamed_TheOneUnusedForLongestGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		named := discovery.NewNamed(patterns(t, "*.local:80"))
		w := watch(t, named)
		for n := range discovery.MaxNamed {
			<-time.After(time.Millisecond)
			admit(t, named, fmt.Sprintf("p-%d.local:80", n))
		}
		<-time.After(time.Millisecond)
		admit(t, named, "p-0.local:80")
		synctest.Wait()
		for len(w.lists) > 1 {
			<-w.lists
		}
		<-w.lists
		admit(t, named, "more.local:80")
		if len(w.lists) != 1 {
			t.Fatalf("set was called %d times, want once", len(w.lists))
		}
		all := <-w.lists
		if got := " " + names(all) + " "; len(all) != discovery.MaxNamed || strings.Contains(got, " p-1.local:80 ") ||
			!strings.Contains(got, " p-0.local:80 ") || !strings.HasSuffix(got, " more.local:80 ") {
			t.Errorf("%d instances, %s", len(all), got)
		}
	})
}

func TestNamed_ManyAtOnce(t *testing.T) {
	named := discovery.NewNamed(patterns(t, "*.local:80"))
	w := watch(t, named)
	w.want(t, "")
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for n := range 40 {
				admit(t, named, fmt.Sprintf("p-%d.local:80", n))
			}
		})
	}
	all.Wait()
	var last []upstream.Instance
	for range 40 {
		last = <-w.lists
	}
	w.quiet(t)
	if len(last) != 40 {
		t.Errorf("%d instances, want 40", len(last))
	}
}

func TestNamed_OneThatIsKnownCostsNoAllocation(t *testing.T) {
	named := discovery.NewNamed(patterns(t, "10.0.0.0/8:8000"))
	admit(t, named, "10.0.0.1:8000")
	if n := testing.AllocsPerRun(100, func() { admit(t, named, "10.0.0.1:8000") }); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

var _ request.Prefillers = (*discovery.Named)(nil)

func admit(t *testing.T, named *discovery.Named, hostPort string) {
	if name, err := named.Admit(hostPort); err != nil || name != hostPort {
		t.Errorf("Admit(%s) = %q, %v", hostPort, name, err)
	}
}
