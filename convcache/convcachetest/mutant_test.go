package convcachetest

import (
	"context"
	"slices"
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

// flaws break one clause of the contract each.
type flaws struct {
	getThenDelete    bool // Take looks and removes in two critical sections
	takesExpired     bool // Take does not look at the deadline
	peeksExpired     bool // Peek does not
	lateDeadline     bool // the deadline itself still counts as usable
	growsForever     bool // nothing is displaced
	dropsSilently    bool // what is displaced is not handed back
	handsBackItself  bool // a ticket put twice is displaced by itself
	oldestFirst      bool // Peek lists in the wrong order
	takeEmpties      bool // Take forgets the whole conversation
	oneConversation  bool // the key is ignored
	aliases          bool // params are not copied
	newLife          bool // putting back renews the deadline
	newID            bool // putting back renames the ticket
	ignoresContext   bool // an ended context is not noticed
	storesExpired    bool // ttl <= 0 is stored
	neverSupersedes  bool // a contained chain stays
	byFirstBlock     bool // chains that diverge are superseded as well
	byBlocksAlone    bool // so are those that are longer or differ after the last full block
	anyBlockSize     bool // so are those in blocks of another size
	emptyIsContained bool // a ticket without chain is contained in every other
	losesChain       bool // the chain is not kept
	losesEngine      bool // the incarnation and the engine's id are not kept
	losesPrefill     bool // a note's instance and start are not kept
	losesCommon      bool // what is common with others is not kept
	capsLife         bool // nothing lives longer than tickets do
	storesLateNotes  bool // whatever is there
	losesOutline     bool // the outline is not kept
	firstNoteStays   bool // of two of the same
	notesDisplace    bool // tickets too, by what they contain
	notesPushOut     bool // tickets too, as the fifth branch
	notesGoFirst     bool // whatever is put as the fifth
	firstKeyOnly     bool // of several keys one is looked up
	anyNumber        bool // of keys is looked up
	lastKeyFirst     bool // the keys are looked up in the wrong order
	namesFirstKey    bool // all branches carry the first key
	lastKeyDecides   bool // whether tickets of other keys have expired is forgotten
	expiredHides     bool // so are usable ones, where those of a key have expired
	emptyIsExpired   bool // a key without a ticket is as if its tickets had expired
}

func (m *mutant) advance(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = m.now.Add(d)
}

func (m *mutant) usable(t convcache.Ticket) bool {
	return m.now.Before(t.Deadline) || m.lateDeadline && m.now.Equal(t.Deadline)
}

func (m *mutant) key(key convcache.Key) convcache.Key {
	if m.oneConversation {
		return convcache.Key{}
	}
	return key
}

func (m *mutant) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	if ctx.Err() != nil && !m.ignoresContext {
		return nil, convcache.Unavailable
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.anyNumber {
		keys = convcache.Bounded(keys)
	}
	switch {
	case m.firstKeyOnly && len(keys) > 1:
		keys = keys[:1]
	case m.lastKeyFirst:
		keys = slices.Clone(keys)
		slices.Reverse(keys)
	}
	var branches []convcache.KeyedBranch
	otherwise := convcache.Empty
	for _, key := range keys {
		own, outcome := m.branches(key)
		if m.emptyIsExpired && outcome == convcache.Empty {
			outcome = convcache.Expired
		}
		if m.lastKeyDecides || outcome == convcache.Expired {
			otherwise = outcome
		}
		if m.expiredHides && outcome == convcache.Expired {
			return nil, convcache.Expired
		}
		if m.namesFirstKey {
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
		if m.usable(t) || m.peeksExpired {
			branches = append(branches, convcache.KeyedBranch{Key: key, Branch: t.Branch})
		}
	}
	if m.oldestFirst {
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
	if ctx.Err() != nil && !m.ignoresContext {
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
	if m.getThenDelete {
		m.mu.Unlock()
		<-time.After(time.Nanosecond) // in a synctest bubble: until every other taker waits here too
		m.mu.Lock()
	}
	m.tickets[key] = slices.DeleteFunc(m.tickets[key], named)
	if m.takeEmpties {
		delete(m.tickets, key)
	}
	if !m.usable(t) && !m.takesExpired {
		return convcache.Ticket{}, convcache.Expired
	}
	return t, convcache.Taken
}

func (m *mutant) Put(ctx context.Context, key convcache.Key, t convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	if ctx.Err() != nil && !m.ignoresContext {
		return nil, convcache.NotStored
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key = m.key(key)
	deadline := m.now.Add(ttl)
	if !t.Deadline.IsZero() && t.Deadline.Before(deadline) && !m.newLife {
		deadline = t.Deadline
	}
	if m.newID && !t.Deadline.IsZero() {
		t.ID = convcache.NewTicketID()
	}
	if m.capsLife && deadline.After(m.now.Add(2*time.Minute)) {
		deadline = m.now.Add(2 * time.Minute)
	}
	t.Deadline = deadline
	if !m.now.Before(deadline) && !m.storesExpired {
		return nil, convcache.Expired
	}
	if m.losesChain {
		t.Chain = convcache.Chain{}
	}
	if m.losesEngine {
		t.Decode.Incarnation, t.EngineID = "", ""
	}
	if m.losesPrefill && t.HandedBack() {
		t.Prefill.Instance, t.Prefill.Incarnation = "prefill", ""
	}
	if m.losesOutline {
		t.Outline = nil
	}
	if m.losesCommon {
		t.SharedPrefixTokens = 0
	}
	if !m.aliases {
		t.Params = slices.Clone(t.Params)
	}
	if m.growsForever {
		m.tickets[key] = slices.Insert(m.tickets[key], 0, t)
		return nil, convcache.Stored
	}
	if t.HandedBack() && !m.storesLateNotes && m.refuses(key, t) {
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
		if m.supersedes(old, note) && (!old.HandedBack() || m.firstNoteStays || !m.supersedes(note, old)) {
			return true
		}
		if !old.HandedBack() {
			tickets++
		}
	}
	return tickets == 4 && !m.notesPushOut
}

// displace stores t as the newest branch and returns what it displaced.
func (m *mutant) displace(key convcache.Key, t convcache.Ticket) []convcache.Ticket {
	kept := []convcache.Ticket{t}
	var displaced []convcache.Ticket
	for _, old := range m.tickets[key] {
		spared := t.HandedBack() && !old.HandedBack() && !m.notesDisplace
		switch {
		case !m.usable(old), old.ID == t.ID && !m.handsBackItself:
		case !spared && m.supersedes(t, old):
			displaced = append(displaced, old)
		default:
			kept = append(kept, old)
		}
	}
	if len(kept) == 5 {
		at := 4
		for at > 1 && (t.HandedBack() && !m.notesPushOut || m.notesGoFirst) && !kept[at].HandedBack() {
			at--
		}
		displaced = append(displaced, kept[at])
		kept = slices.Delete(kept, at, at+1)
	}
	m.tickets[key] = kept
	if m.dropsSilently {
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
	case m.neverSupersedes:
		return false
	case m.emptyIsContained && a.Tokens == 0:
		return true
	case a.BlockSize != b.BlockSize && !m.anyBlockSize:
		return false
	case same, shared == 0:
		return same
	case shared < len(a.Blocks):
		return m.byFirstBlock
	}
	return a.Tokens < b.Tokens || m.byBlocksAlone
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

func TestChecks_FailForEachBrokenClause(t *testing.T) {
	for _, tc := range []struct {
		check string
		flaws
	}{
		{"of 32 takers one gets the ticket", flaws{getThenDelete: true}},
		{"a ticket is taken until its deadline", flaws{takesExpired: true}},
		{"a ticket is found until its deadline", flaws{peeksExpired: true}},
		{"expired branches are not shown beside others", flaws{peeksExpired: true}},
		{"a ticket is found until its deadline", flaws{lateDeadline: true}},
		{"a ticket is taken until its deadline", flaws{lateDeadline: true}},
		{"a fifth branch displaces the oldest", flaws{growsForever: true}},
		{"a fifth branch displaces the oldest", flaws{dropsSilently: true}},
		{"the same ticket put twice is there once", flaws{handsBackItself: true}},
		{"branches are shown newest first", flaws{oldestFirst: true}},
		{"taking one ticket leaves the others", flaws{takeEmpties: true}},
		{"conversations do not see each other", flaws{oneConversation: true}},
		{"a ticket put is found and taken whole", flaws{aliases: true}},
		{"a put-back cannot live longer", flaws{newLife: true}},
		{"a put-back keeps id and deadline", flaws{newID: true}},
		{"an ended context changes nothing", flaws{ignoresContext: true}},
		{"no time left stores nothing", flaws{storesExpired: true}},
		{"a contained chain is superseded", flaws{neverSupersedes: true}},
		{"the same tokens supersede", flaws{neverSupersedes: true}},
		{"superseding makes room", flaws{neverSupersedes: true}},
		{"a contained chain is superseded", flaws{dropsSilently: true}},
		{"chains that are not contained stay", flaws{byFirstBlock: true}},
		{"chains that are not contained stay", flaws{byBlocksAlone: true}},
		{"chains that are not contained stay", flaws{anyBlockSize: true}},
		{"tickets without chain do not supersede", flaws{emptyIsContained: true}},
		{"a ticket put is found and taken whole", flaws{losesChain: true}},
		{"a ticket put is found and taken whole", flaws{losesEngine: true}},
		{"a ticket put is found and taken whole", flaws{losesCommon: true}},
		{"a ticket put is found and taken whole", flaws{losesOutline: true}},
		{"a note is found and taken whole", flaws{losesPrefill: true}},
		{"a note lives for its own time", flaws{capsLife: true}},
		{"a note takes the place of its ticket alone", flaws{handsBackItself: true}},
		{"what comes later supersedes a note", flaws{neverSupersedes: true}},
		{"what comes later supersedes a note", flaws{firstNoteStays: true}},
		{"what comes later supersedes a note", flaws{dropsSilently: true}},
		{"a late note is not stored beside what has its tokens", flaws{storesLateNotes: true}},
		{"a late note is stored beside what has not", flaws{byFirstBlock: true}},
		{"a note displaces no ticket", flaws{notesDisplace: true}},
		{"a note displaces no ticket", flaws{notesPushOut: true}},
		{"a fifth branch displaces notes like tickets", flaws{notesPushOut: true}},
		{"a fifth branch displaces notes like tickets", flaws{notesGoFirst: true}},
		{"branches of several keys are shown in the order of the keys", flaws{lastKeyFirst: true}},
		{"branches of several keys are shown in the order of the keys", flaws{oldestFirst: true}},
		{"branches of several keys are shown in the order of the keys", flaws{namesFirstKey: true}},
		{"several keys are shown whole", flaws{firstKeyOnly: true}},
		{"several keys without a ticket are empty", flaws{emptyIsExpired: true}},
		{"keys beyond the bound are not looked up", flaws{anyNumber: true}},
		{"expired tickets of one key hide no others", flaws{expiredHides: true}},
		{"expired tickets of one key hide no others", flaws{lastKeyDecides: true}},
		{"expired tickets of one key hide no others", flaws{peeksExpired: true}},
		{"a ticket is shown and taken under its own key", flaws{oneConversation: true}},
		{"an ended context shows none of several keys", flaws{ignoresContext: true}},
	} {
		if failed := failing(t, tc.flaws); !slices.Contains(failed, tc.check) {
			t.Errorf("%+v: failing checks: got %q, want %q among them", tc.flaws, failed, tc.check)
		}
	}
}
