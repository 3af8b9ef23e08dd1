package prefixindex

import "testing"

func TestPlaces_EndWithinTheirPieces(t *testing.T) {
	for _, row := range []struct {
		bytes, ids, block int
		want              []int // by piece, how many tokens the place has
	}{
		{4 * 1024, 1024, 16, []int{256, 512, 768, 1024}},
		{4 * 1024, 1000, 16, []int{128, 384, 640, 896}},
		{4*1024 + 900, 1024, 16, []int{128, 384, 512, 768}},
		{4 * 1024, 1024, 100, []int{200, 400, 700, 900}},
		{4 * 1024, 1024, 300, []int{0, 300, 600, 900}},
		{4 * 1024, 100, 16, []int{0, 0, 0, 0}},
		{4 * 1024, 0, 16, []int{0, 0, 0, 0}},
		{2 * 1024, 1024, 16, []int{512, 1024, 1024, 1024}}, // the text is said to be shorter than its pieces
	} {
		p := ComputedPrompt{Chain: make([]uint64, 4), Bytes: row.bytes, BlockSize: row.block}
		for i := range row.ids {
			p.IDs = append(p.IDs, uint32(i))
		}
		for i, got := range p.blockMarks(7) {
			want := uint64(0)
			if row.want[i] > 0 {
				want = prefixHash(7, p.IDs[:row.want[i]])
			}
			if got != want {
				t.Errorf("%d bytes, %d ids in blocks of %d: piece %d has not the place at %d", row.bytes, row.ids, row.block, i, row.want[i])
			}
		}
	}
}
