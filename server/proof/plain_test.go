package proof

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"carryover/convcache"
)

func TestIDs_OfPlainChunksAreChainedAsOfOthers(t *testing.T) {
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	key := secret.ChainKey()
	many := strings.TrimSuffix(strings.Repeat("7,", 3*fewIDs), ",")
	for _, output := range []string{"[5]", "[ 5 , 6 ]", "[]", "[5", "[5,]", "[5]x", `["5"]`, "[-1]", "[4294967296]", "[" + many + "]", "[" + many + ",x]", "null", ""} {
		t.Run(fmt.Sprintf("%.12s", output), func(t *testing.T) {
			quick, general := &IDs{chain: key.Grow([]uint32{1, 2, 3}, 4)}, &IDs{chain: key.Grow([]uint32{1, 2, 3}, 4)}
			ineligible, want := quick.AddOutput([]byte(output)), general.Add(nil, []byte(output))
			if ineligible != want {
				t.Errorf("odd %q, want %q", ineligible, want)
			}
			n := general.chain.Len()
			got, _ := quick.chain.Chain(n)
			if chain, _ := general.chain.Chain(n); !reflect.DeepEqual(got, chain) {
				t.Errorf("chain %+v, want %+v", got, chain)
			}
		})
	}
	var none *IDs
	if ineligible := none.AddOutput([]byte("[5]")); ineligible != "" {
		t.Errorf("without ids: odd %q, want none", ineligible)
	}
}

func TestIDs_OfPlainChunksCostNoAllocation(t *testing.T) {
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	k := &IDs{chain: secret.ChainKey().Grow([]uint32{1}, 16)}
	output := []byte("[12345]")
	if per := testing.AllocsPerRun(5, func() {
		for range 2000 {
			k.AddOutput(output)
		}
	}) / 2000; per > 0.005 {
		t.Errorf("allocations per event: got %.4f, want 0", per)
	}
}
