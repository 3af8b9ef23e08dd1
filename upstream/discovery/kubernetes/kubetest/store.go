package kubetest

import (
	"maps"
	"slices"
	"sync"
)

// change is one write: the pod before and after it; nil where there is none.
type change struct {
	version       int
	before, after *Pod
}

type store struct {
	mu        sync.Mutex
	version   int
	forgotten int // history up to here is gone
	history   []change
	now       map[string]*Pod // by name
	news      chan struct{}   // closed and replaced with each change that watches see
}

func newStore() *store {
	return &store{version: 1000, forgotten: 1000, now: map[string]*Pod{}, news: make(chan struct{})}
}

func (s *store) write(name string, after *Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.history = append(s.history, change{version: s.version, before: s.now[name], after: after})
	s.now[name] = after
	s.wake()
}

// pass counts a change that matches no selector.
func (s *store) pass() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
}

func (s *store) compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgotten = s.version
}

// wake needs the lock.
func (s *store) wake() {
	close(s.news)
	s.news = make(chan struct{})
}

type versioned struct {
	*Pod
	version int
}

// at returns the pods as they were at a version. It needs the lock.
func (s *store) at(version int) map[string]versioned {
	pods := map[string]versioned{}
	for _, c := range s.history {
		switch {
		case c.version > version:
		case c.after == nil:
			delete(pods, c.before.Name)
		default:
			pods[c.after.Name] = versioned{c.after, c.version}
		}
	}
	return pods
}

// snapshot returns the matching pods at a version, by name; 0 is the current version. ok is false where history is gone.
func (s *store) snapshot(which selector, version int) (_ []versioned, at int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == 0 {
		version = s.version
	} else if version < s.forgotten {
		return nil, 0, false
	}
	pods := s.at(version)
	var listed []versioned
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		if which.matches(pods[name].Labels) {
			listed = append(listed, pods[name])
		}
	}
	return listed, version, true
}

// since returns the changes after a version, and a channel that the next change closes. ok is false where some are gone.
func (s *store) since(version int) (changes []change, current int, news <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.forgotten {
		return nil, 0, nil, false
	}
	for _, c := range s.history {
		if c.version > version {
			changes = append(changes, c)
		}
	}
	return changes, s.version, s.news, true
}
