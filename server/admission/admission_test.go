package admission_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/admission"
	"carryover/server/queue"
)

// A slot is given back once, whoever gives it back, and the next client that waits gets it.
func TestLease_GivesItsSlotBackOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := admission.New(1, admission.QueueConfig{MaxQueue: 1, QueueTimeout: time.Minute})
		first, waited, err := s.Take(t.Context(), "a")
		if err != nil || waited != 0 || s.Open() != 1 {
			t.Fatalf("a free slot: %v after %v", err, waited)
		}
		got := make(chan error, 1)
		go func() {
			second, waited, err := s.Take(t.Context(), "b")
			if waited != time.Second {
				t.Errorf("waited %v, want a second", waited)
			}
			second.GiveBack()
			got <- err
		}()
		synctest.Wait()
		if begin, instance := s.Waiting(); begin != 1 || instance != 0 {
			t.Errorf("%d wait to begin and %d for an instance, want 1 and none", begin, instance)
		}
		<-time.After(time.Second)
		first.GiveBack()
		first.GiveBack()
		(&admission.Lease{}).GiveBack() // holds none
		if err := <-got; err != nil || s.Open() != 0 {
			t.Errorf("the second client gets %v, and %d slots are held at last, want none", err, s.Open())
		}
	})
}

// A server that drains refuses those who wait and those who come, and held slots stay held.
func TestSlots_RefuseOnceTheyAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := admission.New(1, admission.QueueConfig{MaxQueue: 1, QueueTimeout: time.Minute})
		held, _, err := s.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, _, err := s.Take(t.Context(), "b")
			got <- err
		}()
		synctest.Wait()
		s.Close()
		_, _, late := s.Take(t.Context(), "c")
		if early := <-got; !errors.Is(early, queue.ErrClosed) || !errors.Is(late, queue.ErrClosed) || !s.Closed() || s.Open() != 1 {
			t.Errorf("waiting: %v, late: %v, %d slots held; want both refused and one held", early, late, s.Open())
		}
		held.GiveBack()
	})
}

// The limit per tenant counts turns that have a slot, and can change while the server runs.
func TestSlots_LimitEachTenant(t *testing.T) {
	s := admission.New(4, admission.QueueConfig{MaxPerTenant: 1})
	lease, _, err := s.Take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer lease.GiveBack()
	if _, _, err := s.Take(t.Context(), "a"); !errors.Is(err, queue.ErrTenant) {
		t.Errorf("the second slot of a tenant: %v, want %v", err, queue.ErrTenant)
	}
	s.Configure(admission.QueueConfig{MaxPerTenant: 2})
	more, _, err := s.Take(t.Context(), "a")
	if err != nil {
		t.Errorf("the second slot after the limit was raised: %v", err)
	}
	more.GiveBack()
}
