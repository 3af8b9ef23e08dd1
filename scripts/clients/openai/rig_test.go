// Package openai_test holds the program to the OpenAI SDK for Go. The addresses of the program and of the simulated engines are in
// the environment: scripts/clients/run starts them.
package openai_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const model = "sim"

// hit is what X-KV-Reuse says of a turn that reused KV.
var hit = regexp.MustCompile(`^hit;tokens=\d+;read=\d+;age=\d+\.\d;proof=tokens;confirmed=\d+(;reason=\w+)?(;differs=.+)?$`)

// last says that a turn is the last of its conversation.
func last() option.RequestOption { return option.WithHeader("X-Conversation-Final", "true") }

// at is an SDK client of what the environment names.
func at(t *testing.T, variable string) openai.Client {
	t.Helper()
	return openai.NewClient(option.WithBaseURL(address(t, variable)+"/v1"), option.WithAPIKey("a client's key"), option.WithMaxRetries(0))
}

func address(t *testing.T, variable string) string {
	t.Helper()
	url := os.Getenv(variable)
	if url == "" {
		t.Fatalf("%s is not set; scripts/clients/run sets it", variable)
	}
	return url
}

func newID() string { return "go-" + rand.Text() }

// system opens a conversation as no other: of what prefill has computed for another, it would read nothing.
func system(id string) openai.ChatCompletionMessageParamUnion {
	return openai.SystemMessage("You keep log " + id + " of a lighthouse on an island far out at sea. You answer in whole sentences, and briefly.")
}

// reply is an answer as the SDK has it.
type reply struct {
	message openai.ChatCompletionMessage
	finish  string
	usage   openai.CompletionUsage
	reuse   string
}

// way is how an answer is asked for.
type way func(*testing.T, openai.Client, openai.ChatCompletionNewParams, ...option.RequestOption) reply

func whole(t *testing.T, sdk openai.Client, params openai.ChatCompletionNewParams, options ...option.RequestOption) reply {
	t.Helper()
	var raw *http.Response
	completion, err := sdk.Chat.Completions.New(t.Context(), params, append(options, option.WithResponseInto(&raw))...)
	if err != nil {
		t.Fatal(err)
	}
	choice := completion.Choices[0]
	return reply{choice.Message, choice.FinishReason, completion.Usage, raw.Header.Get("X-KV-Reuse")}
}

func streamed(t *testing.T, sdk openai.Client, params openai.ChatCompletionNewParams, options ...option.RequestOption) reply {
	t.Helper()
	var raw *http.Response
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	stream := sdk.Chat.Completions.NewStreaming(t.Context(), params, append(options, option.WithResponseInto(&raw))...)
	defer func() { _ = stream.Close() }()
	var all openai.ChatCompletionAccumulator
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Fatalf("the accumulator refuses %s", stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatal(err)
	}
	choice := all.Choices[0]
	return reply{choice.Message, choice.FinishReason, all.Usage, raw.Header.Get("X-KV-Reuse")}
}

// warmUp repeats a conversation until two in a row reuse KV: each prefill instance has to see each shape of request once first.
// converse holds one under a fresh id and returns the X-KV-Reuse of its turns.
func warmUp(t *testing.T, converse func() []string) {
	t.Helper()
	row := 0
	until(t, "turns reuse KV", func() bool {
		row++
		for _, reuse := range converse()[1:] {
			if !strings.HasPrefix(reuse, "hit;") {
				row = 0
			}
		}
		return row == 2
	})
}

// wantHits checks that all turns but the first have reused KV.
func wantHits(t *testing.T, outcomes []string) {
	t.Helper()
	for n, reuse := range outcomes {
		if n == 0 && !strings.HasSuffix(reuse, ";reason=first_turn") || n > 0 && !hit.MatchString(reuse) {
			t.Errorf("turn %d: got X-KV-Reuse %q", n+1, reuse)
		}
	}
}

// fault sets a fault of a simulated engine, for requests of the chat route: legs that release tickets take the other.
func fault(t *testing.T, url, fault string) {
	t.Helper()
	resp, err := http.Post(url+"/_sim/faults", "application/json", strings.NewReader(fault))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("fault %s: %s", fault, resp.Status)
	}
}

// counted is what decode counts of requests.
type counted struct{ Running, Aborts int }

func decodeStats(t *testing.T) (c counted) {
	t.Helper()
	resp, err := http.Get(address(t, "DECODE_URL") + "/_sim/stats")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&c); err != nil {
		t.Fatal(err)
	}
	return c
}

// until asks again until it holds, for a minute.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !holds() {
		if ctx.Err() != nil {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
