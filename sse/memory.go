package sse

import "sync"

// Memory keeps arrays of streams that have ended and gives them to other streams, in the two sizes that nearly all of them use.
// The garbage collector takes unused arrays within two of its cycles; larger arrays are never kept. Memory is safe for
// concurrent use. Its zero value is ready for use, and a nil Memory keeps nothing.
type Memory struct{ first, small sync.Pool }

// take returns an array of this size with arbitrary content.
func (m *Memory) take(size int) []byte {
	if m != nil {
		switch size {
		case firstBuffer:
			if array, ok := m.first.Get().(*[firstBuffer]byte); ok {
				return array[:]
			}
		case smallBuffer:
			if array, ok := m.small.Get().(*[smallBuffer]byte); ok {
				return array[:]
			}
		}
	}
	return make([]byte, size)
}

// giveBack takes an array of any size. Nothing may use it afterwards.
func (m *Memory) giveBack(array []byte) {
	if m == nil {
		return
	}
	switch len(array) {
	case firstBuffer:
		m.first.Put((*[firstBuffer]byte)(array))
	case smallBuffer:
		m.small.Put((*[smallBuffer]byte)(array))
	}
}
