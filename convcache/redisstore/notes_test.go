package redisstore_test

import (
	"context"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"carryover/convcache"
	"carryover/convcache/redistest"
)

// chained returns a ticket that covers tokens in blocks of the given hashes.
func chained(n, tokens int, blocks ...uint64) Ticket {
	tk := fullTicket(n)
	tk.Chain = Chain{BlockSize: 16, Blocks: blocks, Whole: uint64(n), Tokens: tokens}
	tk.Tokens = tokens
	return tk
}

// noteOf returns the note of a ticket.
func noteOf(tk Ticket) Ticket {
	return tk.Note(Holder{Instance: "prefill-one", Incarnation: "1.8e+09"}, (&clock{}).now())
}

// putNote puts a note for its whole life and compares the outcome.
func (r *replica) putNote(k Key, note Ticket, want Outcome) {
	r.t.Helper()
	if displaced := r.putFor(convcache.NoteTTL, k, note, want); displaced != nil {
		r.t.Errorf("a note displaces %d", len(displaced))
	}
}

func TestRedis_NotesAreShownAfterAFailover(t *testing.T) {
	t.Parallel()
	master, heir := redistest.Start(t), redistest.Start(t)
	heir.ReplicaOf(master)
	forward := redistest.Forward(t, master.Addr())
	r := openAt(t, forward)
	note := fullNote(1)
	r.putNote(k1, note, Stored)
	heir.ReplicaOf(master) // waits until it has everything
	heir.Promote()
	master.Kill()
	forward.Target(heir.Addr())
	r.check()
	branches := r.look(k1)
	if len(branches) != 1 || branches[0].Prefill != note.Prefill || branches[0].SharedPrefixTokens != note.SharedPrefixTokens {
		t.Errorf("branches: got %+v, want the note %+v", branches, note)
	}
	r.take(k1, note, Fenced)
	r.look(k1, Empty)
}

// A put of a note is one command, and two where a branch may have its tokens.
func TestRedis_NotesAreRarelyAskedAbout(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	for n, tc := range []struct {
		name  string
		there Ticket
		want  Outcome
		calls int
	}{
		{"a shorter branch", chained(2, 40, 7, 8), Stored, 1},
		{"a longer one that begins otherwise", chained(2, 70, 7, 9, 10, 11), Stored, 2},
		{"a longer one", chained(2, 70, 7, 8, 9, 10), Superseded, 1},
	} {
		r.put(key(n), tc.there)
		before := s.Calls("evalsha")
		r.putNote(key(n), noteOf(chained(1, 50, 7, 8, 9)), tc.want)
		if got := s.Calls("evalsha") - before; got != tc.calls {
			t.Errorf("beside %s: got %d commands, want %d", tc.name, got, tc.calls)
		}
	}
}

// after is what happens after a client's command was answered.
type after func(cmd redis.Cmder)

func (after) DialHook(next redis.DialHook) redis.DialHook { return next }

func (after) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a after) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		a(cmd)
		return err
	}
}

// The next turn's ticket is put by another replica while the first reads what may outdate the note.
func TestRedis_NoteIsHeldAgainstWhatComesMeanwhile(t *testing.T) {
	s := redistest.Start(t)
	r := openAt(t, s)
	other := openAt(t, s)
	r.check()
	edited, next := chained(2, 70, 7, 9, 10, 11), chained(3, 70, 7, 8, 9, 10)
	r.put(k1, edited)
	var once sync.Once
	r.Client().AddHook(after(func(redis.Cmder) { once.Do(func() { other.put(k1, next) }) }))
	r.putNote(k1, noteOf(chained(1, 50, 7, 8, 9)), Superseded)
	if branches := r.look(k1); len(branches) != 2 || branches[0].ID != next.ID {
		t.Errorf("branches: got %+v, want the next turn's ticket before the edited one's", branches)
	}
}

// A branch that can't be read shows nothing, and a server that asks without end is not answered without end.
func TestRedis_NotesBesideWhatCannotBeRead(t *testing.T) {
	r := openAt(t, redistest.Start(t))
	r.put(k1, chained(2, 70, 7, 8, 9, 10))
	note := noteOf(chained(1, 50, 7, 8, 9))
	asks := r.mutate(`not string.find(ARGV[6], old.id, 1, true)`, `true`)
	fields := r.hash(k1)
	fields["0b"] = "\x01nonsense of somebody"
	r.write(k1, fields)
	asks.putNote(k1, note, Unavailable)
	r.take(k1, note, Consumed)
	r.putNote(k1, note, Stored)
	if got := r.take(k1, note); !sameAs(got, note) {
		t.Errorf("take: got %+v, want %+v", got, note)
	}
	if !asks.Shares() {
		t.Error("a server that asks too much is not asked any more")
	}
}
