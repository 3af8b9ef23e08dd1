package facts

import (
	"slices"
	"strings"
	"testing"
)

func TestBounded_TheSenderWithMostGivesWay(t *testing.T) {
	for _, row := range []struct{ name, puts, want string }{
		{"room", "a1 b2 c3", "c3 b2 a1"},
		{"its own goes", "a1 b2 b3 b4", "b4 b3 a1"},
		{"another's goes, who has more", "b1 b2 a3 a4", "a4 a3 b2"},
		{"all have one: the one used longest ago", "a1 b2 c3 d4", "d4 c3 b2"},
		{"a use counts", "a1 b2 c3 a1 d4", "d4 a1 c3"},
		{"a known one needs no room", "a1 b2 c3 b1", "b1 c3 b2"},
	} {
		m := newBounded[byte, string](3)
		for put := range strings.FieldsSeq(row.puts) {
			if _, known := m.get(put[1]); !known || put[0] != 'a' {
				m.put(put[:1], put[1], put)
			}
		}
		if got := strings.Join(slices.Collect(m.values()), " "); got != row.want {
			t.Errorf("%s: %s leaves %s, want %s", row.name, row.puts, got, row.want)
		}
	}
}
