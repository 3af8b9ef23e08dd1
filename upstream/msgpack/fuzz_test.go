package msgpack_test

import (
	"testing"

	"carryover/upstream/msgpack"
)

// FuzzReader reads any bytes: nothing panics, readers agree on how long a value is, and what is read is bounded by what
// is there.
func FuzzReader(f *testing.F) {
	for _, digits := range []string{
		"82a474797065aa50726f78794e6f746966a67265715f6964a131", "dd ffffffff 00", "df 7fffffff 00 00", "db ffffffff", "c9 ffffffff 01",
		"93 cb 3ff8000000000000 91 85 a474797065 ab426c6f636b53746f726564 a1 61 91 cf ffffffffffffffff a1 62 c0 c4 01 00 d6 ff 00000000 c3 00 00",
	} {
		f.Add(bytesOf(f, digits))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		skipped := msgpack.NewReader(message)
		skipErr := skipped.Skip()
		read := msgpack.NewReader(message)
		text, err := shown(read)
		if err == nil && skipErr != nil || err == nil && read.Len() != skipped.Len() {
			t.Errorf("read up to %d bytes before the end, skipped up to %d (error %v)", read.Len(), skipped.Len(), skipErr)
		}
		// A byte is six characters at most, \u00XX, and as an extension three.
		if len(text) > 32*len(message) {
			t.Errorf("%d characters of %d bytes", len(text), len(message))
		}
	})
}
