package proof

import (
	"fmt"
	"testing"
)

// What retaining costs for each id, and how much memory an id takes in conversations of such lengths.
func BenchmarkRetained(b *testing.B) {
	for _, n := range []int{100, 1000, 4000, 16000, 128000} {
		ids := manyIDs(n)
		told := list(ids...)
		arena := NewArena(1 << 20)
		retained := retain(arena, ids)
		used, _ := arena.Use()
		dst := retained.AppendList(nil)
		for _, does := range []struct {
			name string
			do   func()
		}{
			{"Retain", func() { retain(arena, ids).Free() }},
			{"AppendList", func() { dst = retained.AppendList(dst[:0]) }},
			{"Are", func() { retained.Are(told) }},
		} {
			b.Run(fmt.Sprint(does.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					does.do()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/id")
				b.ReportMetric(float64(used)/float64(n), "B/id")
			})
		}
	}
}

// An event of a stream has an id.
func BenchmarkAddOutput(b *testing.B) {
	outputs := [][]byte{}
	for _, id := range manyIDs(1000) {
		outputs = append(outputs, list(id))
	}
	for name, arena := range map[string]*Arena{"retained": NewArena(1 << 30), "not": nil} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var k *IDs
			for n := 0; b.Loop(); n++ {
				if n%4000 == 0 { // an answer
					k.Discard()
					k = answering(b, arena, []uint32{1})
				}
				k.AddOutput(outputs[n%len(outputs)])
			}
			k.Discard()
		})
	}
}
