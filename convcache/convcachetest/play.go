package convcachetest

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"carryover/convcache"
)

// apart repeats steps for each of several chains.
func apart(steps string, chains ...string) string {
	var all []string
	for _, chain := range chains {
		all = append(all, "anew, "+fmt.Sprintf(steps, chain))
	}
	return strings.Join(all, ", ")
}

// player does the steps of a check to a store.
type player struct {
	Harness
	key     convcache.Key // of the conversation
	tickets map[string]convcache.Ticket
	homes   map[string]convcache.Key // where they were put
}

// Run does the steps, and returns the first that the store answers otherwise.
func (c Check) Run(ctx context.Context, h Harness) error {
	p := player{h, convcache.Key{1, 0, 1}, map[string]convcache.Ticket{}, map[string]convcache.Key{}}
	for step := range strings.SplitSeq(c.Steps, ",") {
		if err := p.step(ctx, strings.Fields(step)); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	return nil
}

func (p *player) step(ctx context.Context, words []string) error {
	verb, words := words[0], words[1:]
	s := p.understand(words)
	switch verb {
	case "ended":
		ended, cancel := context.WithCancel(ctx)
		cancel()
		return p.step(ended, words)
	case "anew":
		p.key[1]++
		clear(p.tickets)
	case "in":
		p.key = s.keys[0]
	case "wait":
		p.Advance(s.life)
	case "chain":
		t := p.ticket(words[0])
		t.Chain = chain(words[1:])
		t.Tokens = t.Chain.Tokens
		p.tickets[words[0]] = t
	case "note":
		t := p.tickets[words[0]]
		p.tickets[words[0]] = t.Note(convcache.Holder{Instance: "prefill of " + t.Decode.Instance, Incarnation: "2" + t.Decode.Incarnation}, p.Now())
	case "back":
		for _, name := range words {
			for _, verb := range []string{"put", "take", "note"} {
				if err := p.step(ctx, []string{verb, name}); err != nil {
					return err
				}
			}
		}
	case "put":
		for i, name := range s.names {
			if err := p.put(ctx, name, s, i == len(s.names)-1); err != nil {
				return err
			}
		}
	case "take":
		return p.take(ctx, s)
	case "peek":
		return p.peek(ctx, s)
	case "race":
		return p.race(ctx)
	default:
		return fmt.Errorf("no step is called %q", verb)
	}
	return nil
}

// said is what the words of a step name.
type said struct {
	names, over []string
	keys        []convcache.Key
	life        time.Duration
	timed       bool // life is given
	outcome     string
}

func (p *player) understand(words []string) said {
	var s said
	for i, word := range words {
		number, noNumber := strconv.Atoi(word)
		life, noLife := time.ParseDuration(word)
		switch {
		case word == "over":
			s.over = words[i+1:]
			return s
		case noNumber == nil:
			key := p.key
			key[2] = byte(number)
			s.keys = append(s.keys, key)
		case noLife == nil:
			s.life, s.timed = life, true
		case len(word) > 1:
			s.outcome = word
		default:
			s.names = append(s.names, word)
		}
	}
	return s
}

// differs compares how an operation ended.
func (s said) differs(got convcache.Outcome, otherwise string) error {
	if want := cmp.Or(s.outcome, otherwise); got.String() != want {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

// ticket returns the ticket of that name. A new one has nothing in common with any other.
func (p *player) ticket(name string) convcache.Ticket {
	if _, known := p.tickets[name]; !known {
		n := 1 + len(p.tickets)
		p.tickets[name] = convcache.Ticket{
			Branch: convcache.Branch{
				ID:                 convcache.NewTicketID(),
				Outline:            []uint32{uint32(n), 1 << 31, 1},
				Decode:             convcache.Holder{Instance: fmt.Sprintf("decode-%d", n), Incarnation: fmt.Sprintf("1.%de+09", n)},
				SharedPrefixTokens: 3 * n,
				Tokens:             100 + n,
				Chain:              chain(strings.Fields(fmt.Sprint(100+n, n<<32+1, 1<<62, n))),
				FreshAsOf:          time.Date(2026, time.November, 21, 12, 0, n, 0, time.UTC),
			},
			Params:   fmt.Appendf(nil, `{ "remote_engine_id":"e%d", "n":1.0,"s":"\u00e9\/" }`, n),
			EngineID: fmt.Sprintf("e%d", n),
		}
	}
	return p.tickets[name]
}

// chain returns the chain that words describe. As in any chain, each hash covers the blocks before its own.
func chain(words []string) convcache.Chain {
	tokens, _ := strconv.Atoi(words[0])
	if tokens == 0 {
		return convcache.Chain{}
	}
	c := convcache.Chain{BlockSize: 32, Tokens: tokens}
	covered := uint64(0)
	for _, word := range words[1:] {
		switch word {
		case "otherwise":
			c.Whole++
		case "coarse":
			c.BlockSize = 48
		default:
			block, _ := strconv.ParseUint(word, 10, 64)
			covered = (covered ^ block) * 0x9e3779b97f4a7c15
			c.Blocks = append(c.Blocks, covered)
		}
	}
	c.Whole += covered*31 + uint64(tokens)
	return c
}

// put puts a ticket. The last of a step displaces what the step says.
func (p *player) put(ctx context.Context, name string, s said, last bool) error {
	t := p.ticket(name)
	switch {
	case s.timed:
	case t.HandedBack():
		s.life = convcache.NoteTTL
	default:
		s.life = time.Minute
	}
	given := t
	given.Params = bytes.Clone(t.Params)
	displaced, outcome := p.Store.Put(ctx, p.key, given, s.life)
	clear(given.Params) // the store has bytes of its own
	if !last {
		s.over = nil
	}
	if len(displaced) != len(s.over) {
		return fmt.Errorf("got %d displaced, want %d", len(displaced), len(s.over))
	}
	for i, old := range displaced {
		if err := sameTicket(old, p.tickets[s.over[i]]); err != nil {
			return fmt.Errorf("displaced ticket %d: %w", i, err)
		}
	}
	p.homes[name] = p.key
	return s.differs(outcome, "stored")
}

// take takes a ticket, which from now on is what was taken.
func (p *player) take(ctx context.Context, s said) error {
	want := p.ticket(s.names[0])
	got, outcome := p.Store.Take(ctx, p.key, want.ID)
	if outcome != convcache.Taken {
		want = convcache.Ticket{}
	} else {
		p.tickets[s.names[0]] = got
	}
	return cmp.Or(s.differs(outcome, "taken"), sameTicket(got, want))
}

func (p *player) peek(ctx context.Context, s said) error {
	switch {
	case s.outcome == "nowhere":
		s.outcome = ""
	case s.keys == nil:
		s.keys = []convcache.Key{p.key}
	}
	asked := slices.Clone(s.keys)
	got, outcome := p.Store.Peek(ctx, s.keys)
	otherwise := "empty"
	if len(s.names) > 0 {
		otherwise = "found"
	}
	if len(got) != len(s.names) || !slices.Equal(asked, s.keys) {
		return fmt.Errorf("got %d branches, want %d, of keys that are not changed", len(got), len(s.names))
	}
	for i, b := range got {
		if name := s.names[i]; b.Key != p.homes[name] {
			return fmt.Errorf("branch %d has the key %v, want %v", i, b.Key.Short(), p.homes[name].Short())
		} else if err := sameBranch(b.Branch, p.tickets[name].Branch); err != nil {
			return fmt.Errorf("branch %d: %w", i, err)
		}
	}
	return s.differs(outcome, otherwise)
}

func (p *player) race(ctx context.Context) error {
	const takers, rounds = 32, 20
	for range rounds {
		clear(p.tickets)
		if err := p.step(ctx, []string{"put", "a"}); err != nil {
			return err
		}
		var outcomes [takers]convcache.Outcome
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range takers {
			wg.Go(func() {
				<-start
				_, outcomes[i] = p.Store.Take(ctx, p.key, p.tickets["a"].ID)
			})
		}
		close(start)
		wg.Wait()
		slices.Sort(outcomes[:])
		if outcomes[0] != convcache.Taken || outcomes[1] != convcache.Consumed || outcomes[takers-1] != convcache.Consumed {
			return fmt.Errorf("%d takers got %v, want one ticket", takers, outcomes)
		}
	}
	return nil
}

// sameBranch compares all that a look-up must tell. The deadline of what was never taken is the store's to set, and another is kept by one of the clocks.
func sameBranch(got, want convcache.Branch) error {
	if want.Deadline.IsZero() || want.Deadline.Equal(got.Deadline) || want.Deadline.Round(0).Equal(got.Deadline.Round(0)) {
		want.Deadline = got.Deadline
	}
	if len(got.Chain.Blocks)+len(want.Chain.Blocks) == 0 {
		want.Chain.Blocks = got.Chain.Blocks // no blocks, nil or not
	}
	if got.FreshAsOf.Equal(want.FreshAsOf) {
		want.FreshAsOf = got.FreshAsOf // in whichever zone
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("got %+v, want %+v", got, want)
	}
	return nil
}

// sameTicket compares all that a store must keep.
func sameTicket(got, want convcache.Ticket) error {
	if string(got.Params) != string(want.Params) || got.EngineID != want.EngineID {
		return fmt.Errorf("got params %q of %q, want %q of %q", got.Params, got.EngineID, want.Params, want.EngineID)
	}
	return sameBranch(got.Branch, want.Branch)
}
