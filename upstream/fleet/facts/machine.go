package facts

import "sync"

// Machine is what is known of an engine over its restarts, because it belongs to its machine, to the gateway in front of
// it, or to what was logged of it.
type Machine struct {
	Speed     *Speed
	AnswerIDs AnswerIDs
	judgment  judgment
}

// judgment is the last one that said why an incarnation takes no part in the token proof.
type judgment struct {
	mu   sync.Mutex // guards the rest
	made bool
	is   [2]string // the incarnation's id, and why
}

// Judge records why an incarnation takes no part in the token proof, "" if it takes part. It reports whether that
// differs from the last judgment, or concerns another incarnation.
func (m *Machine) Judge(incarnation, why string) (changed bool) {
	j, is := &m.judgment, [2]string{incarnation, why}
	j.mu.Lock()
	defer j.mu.Unlock()
	changed = !j.made || j.is != is
	j.made, j.is = true, is
	return changed
}
