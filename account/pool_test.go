package account

import (
	"strings"
	"testing"
)

func TestPool_TheAccountWithMostGivesWay(t *testing.T) {
	for _, row := range []struct{ name, puts, want string }{
		{"room", "a1 b2 c3", "a1 b2 c3"},
		{"its own goes", "a1 b2 b3 b4", "a1 b3 b4"},
		{"another's goes, who has more", "b1 b2 a3 a4", "b2 a3 a4"},
		{"all have one: the one used longest ago", "a1 b2 c3 d4", "b2 c3 d4"},
		{"a use counts", "a1 b2 c3 a1 d4", "a1 c3 d4"},
		{"what weighs more counts more", "a1 B2 a3 c4", "a1 a3 c4"},
		{"it weighs less now", "a1 B2 a3 b2 c4", "B2 a3 c4"},
	} {
		var p Pool[string]
		places := map[byte]*Place[string]{}
		for put := range strings.FieldsSeq(row.puts) {
			weight := int64(1)
			if put[0] < 'a' {
				weight = 3
			}
			if known := places[put[1]]; known != nil {
				p.Use(known)
				p.Weigh(known, weight)
				continue
			}
			if p.Len == 3 {
				goes := p.Most().Oldest()
				delete(places, goes.Value[1])
				p.Remove(goes)
			}
			places[put[1]] = p.Add(strings.ToLower(put[:1]), weight, put)
		}
		var left []string
		for _, place := range []byte("12345") {
			if at := places[place]; at != nil {
				left = append(left, at.Value)
			}
		}
		if got := strings.Join(left, " "); got != row.want || p.Len != len(left) {
			t.Errorf("%s: %s leaves %s, want %s", row.name, row.puts, got, row.want)
		}
	}
}

// What is taken out in any order leaves nothing behind.
func TestPool_Emptied(t *testing.T) {
	var p Pool[int]
	var places []*Place[int]
	for i := range 60 {
		places = append(places, p.Add(string(rune('a'+i%7)), int64(i%5), i))
	}
	if newest := p.Of("a").Newest().Value; newest != 56 {
		t.Errorf("the newest of a is %d, want 56", newest)
	}
	for i := range places {
		p.Remove(places[i*7%60])
		if s := p.Most(); s != nil {
			weight := int64(0)
			for place := range s.All() {
				weight += place.weight
			}
			for _, other := range p.shares {
				if other.weight > s.weight || weight != s.weight {
					t.Fatalf("%s has %d, and the first %d by its places %d", other.account, other.weight, s.weight, weight)
				}
			}
		}
	}
	if p.Most() != nil || len(p.shares) != 0 || len(p.most) != 0 || p.Len != 0 {
		t.Errorf("something is left: %+v", p)
	}
}
