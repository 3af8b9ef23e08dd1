package kubetest

import (
	"maps"
	"slices"
	"sync"
)

// change is one write: the object before and after it; nil where there is none.
type change struct {
	version       int
	resource      string
	before, after Object
}

// store is the objects with their history, numbered as etcd numbers them: one count for everything in the cluster.
type store struct {
	mu        sync.Mutex
	version   int
	forgotten int // history up to here is gone
	history   []change
	now       map[string]Object // by resource and name
	news      chan struct{}     // closed and replaced with each change that watches are to see
}

func newStore() *store {
	return &store{version: 1000, forgotten: 1000, now: map[string]Object{}, news: make(chan struct{})}
}

func (s *store) write(resource, name string, after Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	key := resource + "/" + name
	s.history = append(s.history, change{version: s.version, resource: resource, before: s.now[key], after: after})
	s.now[key] = after
	s.wake()
}

// pass numbers a change that no selector of ours is about.
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

// versioned is an object with the version of its last change.
type versioned struct {
	object  Object
	version int
}

// at returns the objects of a resource as they were at a version. It needs the lock.
func (s *store) at(resource string, version int) map[string]versioned {
	objects := map[string]versioned{}
	for _, c := range s.history {
		if c.version > version || c.resource != resource {
			continue
		}
		if c.after == nil {
			delete(objects, c.before.name())
		} else {
			objects[c.after.name()] = versioned{c.after, c.version}
		}
	}
	return objects
}

// snapshot lists what matches at a version, in the order of names; at the current one for 0. ok is false where history is gone.
func (s *store) snapshot(resource string, which selector, version int) (_ []versioned, at int, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version == 0 {
		version = s.version
	} else if version < s.forgotten {
		return nil, 0, false
	}
	objects := s.at(resource, version)
	var listed []versioned
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if which.matches(objects[name].object.labels()) {
			listed = append(listed, objects[name])
		}
	}
	return listed, version, true
}

// since returns the changes of a resource behind a version, and what is closed with the next one. ok is false where some are
// gone.
func (s *store) since(resource string, version int) (changes []change, current int, news <-chan struct{}, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version < s.forgotten {
		return nil, 0, nil, false
	}
	for _, c := range s.history {
		if c.version > version && c.resource == resource {
			changes = append(changes, c)
		}
	}
	return changes, s.version, s.news, true
}
