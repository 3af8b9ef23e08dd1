package convcachetest

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"carryover/convcache"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// mutant is a plain store that keeps the contract, but for its flaws.
type mutant struct {
	flaws

	mu      sync.Mutex // guards now and tickets
	now     time.Time
	tickets map[convcache.Key][]convcache.Ticket // newest first
}

// flaws break one clause of the contract each, and the checks that their tags name have to fail. They are exported so that a test can set each in turn.
type flaws struct {
	GetThenDelete    bool `fails:"of 32 takers one gets the ticket"`                                                                                            // Take looks and removes in two critical sections
	TakesExpired     bool `fails:"a ticket is taken until its deadline"`                                                                                        // Take does not look at the deadline
	PeeksExpired     bool `fails:"a ticket is found until its deadline|expired branches are not shown beside others|expired tickets of one key hide no others"` // Peek does not
	LateDeadline     bool `fails:"a ticket is found until its deadline|a ticket is taken until its deadline"`                                                   // the deadline itself still counts as usable
	GrowsForever     bool `fails:"a fifth branch displaces the oldest"`                                                                                         // nothing is displaced
	DropsSilently    bool `fails:"a fifth branch displaces the oldest|a contained chain is superseded|what comes later supersedes a note"`                      // what is displaced is not handed back
	HandsBackItself  bool `fails:"the same ticket put twice is there once|a note takes the place of its ticket alone"`                                          // a ticket put twice is displaced by itself
	OldestFirst      bool `fails:"branches are shown newest first|branches of several keys are shown in the order of the keys"`                                 // Peek lists in the wrong order
	TakeEmpties      bool `fails:"taking one ticket leaves the others"`                                                                                         // Take forgets the whole conversation
	OneConversation  bool `fails:"conversations do not see each other|a ticket is shown and taken under its own key"`                                           // the key is ignored
	Aliases          bool `fails:"a ticket put is found and taken whole"`                                                                                       // params are not copied
	NewLife          bool `fails:"a put-back cannot live longer"`                                                                                               // putting back renews the deadline
	NewID            bool `fails:"a put-back keeps id and deadline"`                                                                                            // putting back renames the ticket
	IgnoresContext   bool `fails:"an ended context changes nothing|an ended context shows none of several keys"`                                                // an ended context is not noticed
	StoresExpired    bool `fails:"no time left stores nothing"`                                                                                                 // ttl <= 0 is stored
	NeverSupersedes  bool `fails:"a contained chain is superseded|the same tokens supersede|superseding makes room|what comes later supersedes a note"`         // a contained chain stays
	ByFirstBlock     bool `fails:"chains that are not contained stay|a late note is stored beside what has not"`                                                // chains that diverge are superseded as well
	ByBlocksAlone    bool `fails:"chains that are not contained stay"`                                                                                          // so are those that are longer or differ after the last full block
	AnyBlockSize     bool `fails:"chains that are not contained stay"`                                                                                          // so are those in blocks of another size
	EmptyIsContained bool `fails:"tickets without chain do not supersede"`                                                                                      // a ticket without chain is contained in every other
	LosesChain       bool `fails:"a ticket put is found and taken whole"`                                                                                       // the chain is not kept
	LosesEngine      bool `fails:"a ticket put is found and taken whole"`                                                                                       // the incarnation and the engine's id are not kept
	LosesPrefill     bool `fails:"a note is found and taken whole"`                                                                                             // a note's instance and start are not kept
	LosesCommon      bool `fails:"a ticket put is found and taken whole"`                                                                                       // what is common with others is not kept
	CapsLife         bool `fails:"a note lives for its own time"`                                                                                               // nothing lives longer than tickets do
	StoresLateNotes  bool `fails:"a late note is not stored beside what has its tokens"`                                                                        // whatever is there
	LosesOutline     bool `fails:"a ticket put is found and taken whole"`                                                                                       // the outline is not kept
	FirstNoteStays   bool `fails:"what comes later supersedes a note"`                                                                                          // of two of the same
	NotesDisplace    bool `fails:"a note displaces no ticket"`                                                                                                  // tickets too, by what they contain
	NotesPushOut     bool `fails:"a note displaces no ticket|a fifth branch displaces notes like tickets"`                                                      // tickets too, as the fifth branch
	NotesGoFirst     bool `fails:"a fifth branch displaces notes like tickets"`                                                                                 // whatever is put as the fifth
	FirstKeyOnly     bool `fails:"several keys are shown whole"`                                                                                                // of several keys one is looked up
	AnyNumber        bool `fails:"keys beyond the bound are not looked up"`                                                                                     // of keys is looked up
	LastKeyFirst     bool `fails:"branches of several keys are shown in the order of the keys"`                                                                 // the keys are looked up in the wrong order
	NamesFirstKey    bool `fails:"branches of several keys are shown in the order of the keys"`                                                                 // all branches carry the first key
	LastKeyDecides   bool `fails:"expired tickets of one key hide no others"`                                                                                   // whether tickets of other keys have expired is forgotten
	ExpiredHides     bool `fails:"expired tickets of one key hide no others"`                                                                                   // so are usable ones, where those of a key have expired
	EmptyIsExpired   bool `fails:"several keys without a ticket are empty"`                                                                                     // a key without a ticket is as if its tickets had expired
}

func (m *mutant) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

func (m *mutant) usable(t convcache.Ticket) bool {
	return m.now.Before(t.Deadline) || m.LateDeadline && m.now.Equal(t.Deadline)
}

func (m *mutant) key(key convcache.Key) convcache.Key {
	if m.OneConversation {
		return convcache.Key{}
	}
	return key
}

func (m *mutant) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	if ctx.Err() != nil && !m.IgnoresContext {
		return nil, convcache.Unavailable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.AnyNumber {
		keys = convcache.Bounded(keys)
	}
	switch {
	case m.FirstKeyOnly && len(keys) > 1:
		keys = keys[:1]
	case m.LastKeyFirst:
		keys = slices.Clone(keys)
		slices.Reverse(keys)
	}
	var branches []convcache.KeyedBranch
	otherwise := convcache.Empty
	for _, key := range keys {
		own, outcome := m.branches(key)
		if m.EmptyIsExpired && outcome == convcache.Empty {
			outcome = convcache.Expired
		}
		if m.LastKeyDecides || outcome == convcache.Expired {
			otherwise = outcome
		}
		if m.ExpiredHides && outcome == convcache.Expired {
			return nil, convcache.Expired
		}
		if m.NamesFirstKey {
			for i := range own {
				own[i].Key = keys[0]
			}
		}
		branches = append(branches, own...)
	}
	if len(branches) > 0 {
		return branches, convcache.Found
	}
	return nil, otherwise
}

// branches returns what is shown of one key.
func (m *mutant) branches(key convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	var branches []convcache.KeyedBranch
	for _, t := range m.tickets[m.key(key)] {
		if m.usable(t) || m.PeeksExpired {
			branches = append(branches, convcache.KeyedBranch{Key: key, Branch: t.Branch})
		}
	}
	if m.OldestFirst {
		slices.Reverse(branches)
	}
	switch {
	case len(branches) > 0:
		return branches, convcache.Found
	case len(m.tickets[m.key(key)]) > 0:
		return nil, convcache.Expired
	}
	return nil, convcache.Empty
}

func (m *mutant) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	if ctx.Err() != nil && !m.IgnoresContext {
		return convcache.Ticket{}, convcache.Unavailable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	named := func(t convcache.Ticket) bool { return t.ID == id }
	key = m.key(key)
	at := slices.IndexFunc(m.tickets[key], named)
	if at < 0 {
		return convcache.Ticket{}, convcache.Consumed
	}
	t := m.tickets[key][at]
	if m.GetThenDelete {
		m.mu.Unlock()
		<-time.After(time.Nanosecond) // in a synctest bubble: until every other taker waits here too
		m.mu.Lock()
	}
	m.tickets[key] = slices.DeleteFunc(m.tickets[key], named)
	if m.TakeEmpties {
		delete(m.tickets, key)
	}
	if !m.usable(t) && !m.TakesExpired {
		return convcache.Ticket{}, convcache.Expired
	}
	return t, convcache.Taken
}

func (m *mutant) Put(ctx context.Context, key convcache.Key, t convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	if ctx.Err() != nil && !m.IgnoresContext {
		return nil, convcache.NotStored
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key = m.key(key)
	deadline := m.now.Add(ttl)
	if !t.Deadline.IsZero() && t.Deadline.Before(deadline) && !m.NewLife {
		deadline = t.Deadline
	}
	if m.NewID && !t.Deadline.IsZero() {
		t.ID = convcache.NewTicketID()
	}
	if m.CapsLife && deadline.After(m.now.Add(2*time.Minute)) {
		deadline = m.now.Add(2 * time.Minute)
	}
	t.Deadline = deadline
	if !m.now.Before(deadline) && !m.StoresExpired {
		return nil, convcache.Expired
	}
	if m.LosesChain {
		t.Chain = convcache.Chain{}
	}
	if m.LosesEngine {
		t.Decode.Incarnation, t.EngineID = "", ""
	}
	if m.LosesPrefill && t.HandedBack() {
		t.Prefill.Instance, t.Prefill.Incarnation = "prefill", ""
	}
	if m.LosesOutline {
		t.Outline = nil
	}
	if m.LosesCommon {
		t.SharedPrefixTokens = 0
	}
	if !m.Aliases {
		t.Params = slices.Clone(t.Params)
	}
	if m.GrowsForever {
		m.tickets[key] = slices.Insert(m.tickets[key], 0, t)
		return nil, convcache.Stored
	}
	if t.HandedBack() && !m.StoresLateNotes && m.refuses(key, t) {
		return nil, convcache.Superseded
	}
	return m.displace(key, t), convcache.Stored
}

// refuses says whether a note is not to be stored.
func (m *mutant) refuses(key convcache.Key, note convcache.Ticket) bool {
	tickets := 0
	for _, old := range m.tickets[key] {
		if !m.usable(old) || old.ID == note.ID {
			continue
		}
		if m.supersedes(old, note) && (!old.HandedBack() || m.FirstNoteStays || !m.supersedes(note, old)) {
			return true
		}
		if !old.HandedBack() {
			tickets++
		}
	}
	return tickets == 4 && !m.NotesPushOut
}

// displace stores t as the newest branch and returns what it displaced.
func (m *mutant) displace(key convcache.Key, t convcache.Ticket) []convcache.Ticket {
	kept := []convcache.Ticket{t}
	var displaced []convcache.Ticket
	for _, old := range m.tickets[key] {
		spared := t.HandedBack() && !old.HandedBack() && !m.NotesDisplace
		switch {
		case !m.usable(old), old.ID == t.ID && !m.HandsBackItself:
		case !spared && m.supersedes(t, old):
			displaced = append(displaced, old)
		default:
			kept = append(kept, old)
		}
	}
	if len(kept) == 5 {
		at := 4
		for at > 1 && (t.HandedBack() && !m.NotesPushOut || m.NotesGoFirst) && !kept[at].HandedBack() {
			at--
		}
		displaced = append(displaced, kept[at])
		kept = slices.Delete(kept, at, at+1)
	}
	m.tickets[key] = kept
	if m.DropsSilently {
		return nil
	}
	return displaced
}

// supersedes says whether the chain of old is contained in that of t.
func (m *mutant) supersedes(t, old convcache.Ticket) bool {
	a, b := old.Chain, t.Chain
	same := a.Tokens > 0 && a.Tokens == b.Tokens && a.Whole == b.Whole && a.BlockSize == b.BlockSize
	shared := 0
	for shared < min(len(a.Blocks), len(b.Blocks)) && a.Blocks[shared] == b.Blocks[shared] {
		shared++
	}
	switch {
	case m.NeverSupersedes:
		return false
	case m.EmptyIsContained && a.Tokens == 0:
		return true
	case a.BlockSize != b.BlockSize && !m.AnyBlockSize:
		return false
	case same, shared == 0:
		return same
	case shared < len(a.Blocks):
		return m.ByFirstBlock
	}
	return a.Tokens < b.Tokens || m.ByBlocksAlone
}

// failing returns the names of the checks that a store with flaws fails.
func failing(t *testing.T, f flaws) []string {
	t.Helper()
	var failed []string
	for _, check := range Checks() {
		synctest.Test(t, func(t *testing.T) {
			m := &mutant{flaws: f, now: time.Now(), tickets: map[convcache.Key][]convcache.Ticket{}}
			if check.Run(t.Context(), Harness{m, func() time.Time { return m.now }, m.advance}) != nil {
				failed = append(failed, check.Name)
			}
		})
	}
	return failed
}

func TestChecks_PassForAStoreThatKeepsTheContract(t *testing.T) {
	if failed := failing(t, flaws{}); len(failed) != 0 {
		t.Errorf("failing checks: got %q, want none", failed)
	}
}

// Each flaw fails a check, and each check is failed by a flaw.
func TestChecks_FailForEachFlaw(t *testing.T) {
	useful := map[string]bool{}
	for i := range reflect.TypeFor[flaws]().NumField() {
		var f flaws
		reflect.ValueOf(&f).Elem().Field(i).SetBool(true)
		failed, field := failing(t, f), reflect.TypeFor[flaws]().Field(i)
		for want := range strings.SplitSeq(field.Tag.Get("fails"), "|") {
			if !slices.Contains(failed, want) {
				t.Errorf("%s: failing checks: got %q, want %q among them", field.Name, failed, want)
			}
		}
		for _, check := range failed {
			useful[check] = true
		}
	}
	for _, check := range Checks() {
		if !useful[check.Name] {
			t.Errorf("%s: no flaw fails it", check.Name)
		}
	}
}
