package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// stock makes a rig in front of one simulated engine of each role that sends no params in streams, as vLLM 0.32 without a plug-in.
func stock(t *testing.T, cfg func(*server.Config), engines func(*vllmsim.Config), more ...func(*server.Deps)) (r *rig, sims []*vllmsim.Instance) {
	t.Helper()
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		c := vllmsim.DefaultConfig()
		c.Version, c.Model, c.Params = vllmsim.VLLM032, "m", vllmsim.ParamsNever
		if engines != nil {
			engines(&c)
		}
		sim, err := vllmsim.Start(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if s := sim.Stats(); s.CorruptReads != 0 || s.DoubleReads != 0 || s.Poisoned != 0 {
				t.Errorf("%s: got %d corrupt and %d double reads, %d poisoned, want none", role, s.CorruptReads, s.DoubleReads, s.Poisoned)
			}
			if err := sim.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		sims = append(sims, sim)
		instances = append(instances, newInstance(t, role, role.String(), sim.URL()))
	}
	return newRig(t, setup{cfg: cfg, deps: func(d *server.Deps) {
		d.Fleet = newFleet(d.Legs.(*upstream.Client), nil, instances...)
		for _, change := range more {
			change(d)
		}
	}}), sims
}

// told is what a client that knows only the OpenAI API makes of a stream.
type told struct {
	Role, Content, Reasoning, Finish string
	Calls                            []toldCall
	Usage                            map[string]any
	Prompt, IDs                      []int
	Tokens                           []string // of logprobs
}

type toldCall struct {
	Type     string
	Function struct{ Name, Arguments string }
}

// listen reads a stream as OpenAI's clients do: chunks may lack choices or any part of a delta, [DONE] ends it.
func listen(t *testing.T, p reply) (said told) {
	t.Helper()
	if got := p.header.Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("got content type %q of a stream", got)
	}
	events := strings.Split(p.body, "\n\n")
	if n := len(events); n < 3 || events[n-1] != "" || events[n-2] != "data: [DONE]" {
		t.Fatalf("got %q, want events that end with [DONE]", p.body)
	}
	for _, e := range events[:len(events)-2] {
		var chunk struct {
			Choices []struct {
				Index int
				Text  string
				Delta struct {
					Role, Content, Reasoning string
					Calls                    []struct {
						Index int
						ID    string
						toldCall
					} `json:"tool_calls"`
				}
				Finish   *string `json:"finish_reason"`
				IDs      []int   `json:"token_ids"`
				Prompt   []int   `json:"prompt_token_ids"`
				Logprobs struct {
					Content []struct{ Token string }
					Tokens  []string
				}
			}
			Usage  map[string]any
			Prompt []int `json:"prompt_token_ids"`
		}
		data, isData := strings.CutPrefix(e, "data: ")
		if err := json.Unmarshal([]byte(data), &chunk); err != nil || !isData || strings.Contains(data, "\n") {
			t.Fatalf("got event %q (%v), want one line of data", e, err)
		}
		if said.Finish != "" && len(chunk.Choices) > 0 {
			t.Errorf("got %s after the finish", data)
		}
		said.Prompt = append(said.Prompt, chunk.Prompt...)
		if chunk.Usage != nil {
			said.Usage = chunk.Usage
		}
		for _, c := range chunk.Choices {
			said.Role += c.Delta.Role
			said.Content += c.Text + c.Delta.Content
			said.Reasoning += c.Delta.Reasoning
			for _, call := range c.Delta.Calls {
				if call.Index == len(said.Calls) && call.ID != "" {
					said.Calls = append(said.Calls, toldCall{})
				}
				merged := &said.Calls[call.Index]
				merged.Type += call.Type
				merged.Function.Name += call.Function.Name
				merged.Function.Arguments += call.Function.Arguments
			}
			if c.Finish != nil {
				said.Finish = *c.Finish
			}
			said.IDs, said.Prompt = append(said.IDs, c.IDs...), append(said.Prompt, c.Prompt...)
			said.Tokens = append(said.Tokens, c.Logprobs.Tokens...)
			for _, entry := range c.Logprobs.Content {
				said.Tokens = append(said.Tokens, entry.Token)
			}
		}
	}
	return said
}

// script is a text of some hundred tokens for the simulated model to say.
func script(n int) string {
	return fmt.Sprintf("Answer %d. %s", n, strings.TrimSpace(strings.Repeat("The blocks of a turn are held until the next one reads them. ", 6)))
}
