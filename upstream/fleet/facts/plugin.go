package facts

import "sync"

// PlugIn is whether the params of a decode incarnation carry output_token_ids, which a plug-in in vLLM adds.
type PlugIn struct {
	known bool // of an incarnation that is not known, nothing is recorded

	mu    sync.Mutex // guards the rest
	found Finding
}

// Found says whether they do, by the answers so far.
func (p *PlugIn) Found() Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found
}

// Learn records whether the params of an answer that could leave a ticket had output ids. The first answer
// without them withdraws the finding: without its ids a turn leaves no ticket, so a plug-in that adds them only
// sometimes is of no use.
func (p *PlugIn) Learn(present bool) {
	if !p.known {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case !present:
		p.found = No
	case p.found == Unknown:
		p.found = Yes
	}
}
