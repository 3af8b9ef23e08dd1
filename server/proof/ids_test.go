package proof

import (
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// attemptOf is an attempt of a chat turn of which nothing is known yet.
func attemptOf(tb testing.TB) *IDs {
	tb.Helper()
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	must(tb, err)
	req, err := body.ParseRequest(body.Chat, []byte(`{"messages":[]}`))
	must(tb, err)
	return newIDs(&Turn{proof: &Tokens{Chains: secret.ChainKey(), Logger: slog.New(slog.DiscardHandler)}, req: req, api: req.API})
}

// However prefill spells the ids that it was sent, they are the same; and nothing else is.
func TestIDEcho_AcceptsTheIDsThatWereSentAndNoOthers(t *testing.T) {
	for _, told := range []string{`[1,20,300]`, `[1, 20 ,300]`, "[\n1,20,300]"} {
		for computed, ok := range map[string]bool{
			`[1,20,300]`: true, `[1, 20, 300]`: true, "[1,20,300\n]": true, "[\n1,20,300]": true,
			`[1,20,301]`: false, `[1,20]`: false, `[1,20,300,4]`: false, `[]`: false, `null`: false, ``: false, `[1,20,300.0]`: false,
			`[1,20,300`: false, `[1,20,300]]`: false, `"[1,20,300]"`: false, `[01,20,300]`: false, `[1,20,300,]`: false,
		} {
			k := attemptOf(t)
			k.compare(facts.Prompt{IDs: []uint32{1, 20, 300}, List: []byte(told)})
			k.Forward(true)
			err := k.CheckEcho([]byte(computed))
			if ineligible := k.Add([]byte(computed), nil); (err == nil) != ok || (ineligible == "") != ok || k.CheckEcho(nil) == nil {
				t.Errorf("told %q, computed %q: %v by prefill, %q by decode, want accepted %t", told, computed, err, ineligible, ok)
			}
		}
	}
}

// A stream of the Responses API tells the prompt at its end, when the prompt's ids have long been let go of.
func TestAdd_KnowsThePromptOfAResponseWhoseIDsAreGone(t *testing.T) {
	for computed, ok := range map[string]bool{
		`[1,20,300]`: true, `[1, 20, 300]`: true, `[1,20,301]`: false, `[1,20]`: false, `[]`: false, `[1,20,300,4]`: false, `[1,20,300`: false, ``: false,
	} {
		k := attemptOf(t)
		k.turn.api, k.turn.ids = body.Responses, k
		tell(k, 1, 20, 300)
		k.Grow(2)
		k.turn.Drop()
		k.turn.Drop() // with each event of the answer
		if len(k.Prompt()) > 0 {
			t.Fatal("the ids are held")
		}
		if ineligible := k.Add([]byte(computed), []byte(`[4,5]`)); (ineligible == "") != ok {
			t.Errorf("decode computed %q: %q, want accepted %t", computed, ineligible, ok)
		}
	}
}

// Without ids on the leg, those of the look prove nothing of what prefill computes.
func TestIDEcho_OfIDsThatWereNotSentIsReturned(t *testing.T) {
	k := attemptOf(t)
	tell(k, 1, 2, 3)
	k.Forward(false)
	if k.ForPrefill() != nil || len(k.Prompt()) != 0 {
		t.Fatalf("the prefill leg carries %s, of %d ids", k.ForPrefill(), len(k.Prompt()))
	}
	if k.are(nil) || k.are([]byte{}) {
		t.Error("no list is a list")
	}
}

// What white space makes of a list is not sent to both legs.
func TestIDs_ForwardsTheListAsItWasTold(t *testing.T) {
	for told, want := range map[string]string{
		`[1,20]`: `[1,20]`, `[1, 20]`: `[1, 20]`, `[1,` + strings.Repeat(" ", 100) + `20]`: `[1,20]`,
	} {
		k := attemptOf(t)
		k.compare(facts.Prompt{IDs: []uint32{1, 20}, List: []byte(told)})
		k.Forward(true)
		if got := string(k.ForPrefill()); got != want {
			t.Errorf("told %s: sent %s, want %s", told, got, want)
		}
	}
}

// A chain may be grown of an attempt that never knew its ids; it covers what decode tells.
func TestIDs_GrowsAChainOfNothing(t *testing.T) {
	k := attemptOf(t)
	k.Grow(16)
	k.Add(nil, []byte(`[1,2]`))
	if chain, ok := k.chain.Chain(2); !ok || chain.Tokens != 2 {
		t.Errorf("got %+v, %t", chain, ok)
	}
	k.set(facts.Prompt{})
	k.Grow(16)
}

func TestIDs_OfPlainChunksAreChainedAsOfOthers(t *testing.T) {
	secret, err := convcache.RandomSecret()
	must(t, err)
	key := secret.ChainKey()
	many := strings.TrimSuffix(strings.Repeat("7,", 3*fewIDs), ",")
	for _, output := range []string{"[5]", "[ 5 , 6 ]", "[]", "[5", "[5,]", "[5]x", `["5"]`, "[-1]", "[4294967296]", "[" + many + "]", "[" + many + ",x]", "null", ""} {
		k, chain, want := &IDs{chain: key.IDs([]uint32{1, 2, 3}).Grow(4)}, key.IDs([]uint32{1, 2, 3}).Grow(4), ""
		ids, ok := rawjson.ParseIDs([]byte(output))
		if chain.Add(ids); !ok {
			want = "output_ids"
		}
		if ineligible := k.Add(nil, []byte(output)); ineligible != want {
			t.Errorf("%.12s: odd %q, want %q", output, ineligible, want)
		}
		n := chain.Len()
		got, _ := k.chain.Chain(n)
		if want, _ := chain.Chain(n); !reflect.DeepEqual(got, want) {
			t.Errorf("%.12s: chain %+v, want %+v", output, got, want)
		}
	}
	var none *IDs
	if ineligible := none.Add(nil, []byte("[5]")); ineligible != "" {
		t.Errorf("without ids: odd %q, want none", ineligible)
	}
}

func TestIDs_OfPlainChunksCostNoAllocation(t *testing.T) {
	secret, err := convcache.RandomSecret()
	must(t, err)
	k := &IDs{chain: secret.ChainKey().IDs([]uint32{1}).Grow(16)}
	output := []byte("[12345]")
	if per := testing.AllocsPerRun(5, func() {
		for range 2000 {
			k.Add(nil, output)
		}
	}) / 2000; per > 0.005 {
		t.Errorf("allocations per event: got %.4f, want 0", per)
	}
}

// An id that is lost on the way, or comes twice, shows in decode's usage only: remote_num_tokens may be all ids or one less.
func TestSeal_CountsTheIDs(t *testing.T) {
	const miscounted = "ineligible_token_count"
	output := []uint32{4, 5, 6}
	for name, row := range map[string]struct {
		events, params             []uint32 // that tell the output
		tokens, prompt, completion int
		want                       string
	}{
		"right":               {output, nil, 5, 3, 3, ""},
		"one token more":      {output, nil, 6, 3, 3, ""},
		"no usage":            {output, nil, 5, -1, -1, ""},
		"one lost":            {output[:2], nil, 5, 3, 3, miscounted},
		"one doubled":         {[]uint32{4, 5, 5, 6}, nil, 6, 3, 3, miscounted},
		"other prompt":        {output, nil, 5, 2, 3, miscounted},
		"other params":        {output, nil, 4, 3, 3, miscounted},
		"the plug-in's":       {nil, output, 5, 3, 3, ""},
		"one of these lost":   {nil, output[1:], 5, 3, 3, miscounted},
		"of two numbers":      {output, output[1:], 5, 3, 3, miscounted},
		"the prompt's, alone": {nil, nil, 5, 3, 3, Unproven(LacksIDs)},
	} {
		k := answering(t, NewArena(1<<20), []uint32{1, 2, 3})
		k.Add(list(1, 2, 3), list(row.events...))
		turn := &Turn{ids: k, api: body.Messages} // of which no plug-in is learnt
		if _, why := turn.Seal(nil, &upstream.TicketParams{Tokens: row.tokens, OutputIDs: row.params}, row.prompt, row.completion); why != row.want {
			t.Errorf("%s: got %q, want %q", name, why, row.want)
		}
	}
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
