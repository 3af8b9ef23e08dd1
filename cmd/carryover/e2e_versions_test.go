//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// stockVariable is set by scripts/vllm-cpu/e2e --stock: the engines run without the plug-in.
const stockVariable = "CARRYOVER_VLLM_STOCK"

// plugged says whether the engines have the plug-in.
func plugged() bool { return os.Getenv(stockVariable) == "" }

// givenBy is what a decode leg that carries params gets: the event that has params, or "whole"; empty if there are none.
// ids says whether they have the output's ids, which the plug-in alone adds.
type givenBy struct {
	at  string
	ids bool
}

// versionRow is what one version gives, by API and form, without and with the plug-in.
type versionRow map[string]struct{ stock, plugged givenBy }

// Where params come.
const (
	inWhole  = "whole"
	onFinish = "finish chunk"
	onDelta  = "message_delta"
	onEnd    = "response's last event"
)

// versions are the rows as measured, by the first two numbers of the version. Each API has params in whole answers of all of them.
func versions() map[string]versionRow {
	old := versionRow{
		"chat, whole":       {givenBy{inWhole, false}, givenBy{inWhole, true}},
		"chat, stream":      {givenBy{}, givenBy{onFinish, true}},
		"text, whole":       {givenBy{inWhole, false}, givenBy{inWhole, true}},
		"text, stream":      {givenBy{}, givenBy{onFinish, true}},
		"messages, whole":   {givenBy{inWhole, false}, givenBy{inWhole, true}},
		"messages, stream":  {givenBy{}, givenBy{onDelta, true}},
		"responses, whole":  {givenBy{inWhole, false}, givenBy{inWhole, false}},
		"responses, stream": {givenBy{onEnd, false}, givenBy{onEnd, false}},
	}
	now := versionRow{}
	for name, row := range old {
		now[name] = row
	}
	now["chat, stream"] = struct{ stock, plugged givenBy }{givenBy{onFinish, false}, givenBy{onFinish, true}}
	now["text, stream"] = now["chat, stream"]
	return map[string]versionRow{"0.28": old, "0.29": old, "0.30": old, "0.31": old, "0.32": old, "0.33": now}
}

// versionLeg is one decode leg of the row.
type versionLeg struct {
	name, path string
	body       map[string]any
}

func versionLegs() (legs []versionLeg) {
	for _, api := range []struct{ name, path string }{
		{"chat", pathChat}, {"text", pathText}, {"messages", pathMessages}, {"responses", pathResponses},
	} {
		for _, form := range []string{"whole", "stream"} {
			body := agentBody(api.path, []string{about + " " + api.name + form}, nil, blockSize)
			if api.path == pathText {
				body["prompt"] = about + form
			}
			body["stream"] = form == "stream"
			legs = append(legs, versionLeg{api.name + ", " + form, api.path, body})
		}
	}
	return legs
}

// gives is the row of the version at hand.
func (s *suite) gives(t *testing.T) string {
	version := s.version(t)
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	row, known := versions()[major+"."+minor]
	if !known {
		t.Fatalf("vLLM %s has no row", version)
	}
	for _, leg := range versionLegs() {
		got, ticket := s.given(t, leg, s.handOver(t, leg))
		want := row[leg.name].stock
		if plugged() {
			want = row[leg.name].plugged
		}
		if got != want {
			t.Errorf("vLLM %s, %s: params %+v, want %+v", version, leg.name, got, want)
		}
		if ticket != nil {
			delete(ticket, "output_token_ids")
			s.prefillLeg(t, oneShot(200+len(leg.name)), ticket)
		}
	}
	return fmt.Sprintf("vLLM %s, %s: %d answers as in its row", version, choose(plugged(), "with the plug-in", "stock"), len(versionLegs()))
}

// handOver is what prefill leaves of the leg's prompt.
func (s *suite) handOver(t *testing.T, leg versionLeg) map[string]any {
	t.Helper()
	body := asked{body: leg.body}.with(map[string]any{
		"stream": false, choose(leg.path == pathResponses, "max_output_tokens", "max_tokens"): 1, paramsName: map[string]any{
			"do_remote_decode": true, "do_remote_prefill": false, "remote_engine_id": nil, "remote_block_ids": nil, "remote_host": nil, "remote_port": nil,
		},
	}).body
	first := s.askAgentAt(t, s.prefill.url, leg.path, body)
	params := map[string]any{}
	if err := json.Unmarshal([]byte(gjson.GetBytes(first.raw, paramsName).Raw), &params); err != nil {
		t.Fatalf("%s: prefill's params: %v in %.300s", leg.name, err, first.raw)
	}
	delete(params, "output_token_ids")
	params["do_remote_prefill"], params["do_remote_decode"] = true, false
	return params
}

// version is what decode says.
func (s *suite) version(t *testing.T) string {
	t.Helper()
	resp, err := s.client.Get(s.decode.url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var answer struct {
		Version string `json:"version"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	return answer.Version
}

// given asks decode, and says where its params are and what they are.
func (s *suite) given(t *testing.T, leg versionLeg, handOver map[string]any) (givenBy, map[string]any) {
	t.Helper()
	body := asked{body: leg.body}.with(map[string]any{paramsName: handOver}).body
	resp, err := s.client.Post(s.decode.url+leg.path, "application/json", strings.NewReader(string(encode(body))))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: status %d, %v: %.300s", leg.name, resp.StatusCode, err, raw)
	}
	objects := []gjson.Result{gjson.ParseBytes(raw)}
	if leg.body["stream"] == true {
		objects = nil
		for line := range strings.Lines(string(raw)) {
			if data, ok := strings.CutPrefix(line, "data: {"); ok {
				objects = append(objects, gjson.Parse("{"+data))
			}
		}
	}
	var got givenBy
	var ticket map[string]any
	for _, object := range objects {
		params := object.Get(paramsName)
		if inner := object.Get("response." + paramsName); inner.Exists() {
			params = inner
		}
		if !params.IsObject() {
			continue
		}
		if ticket != nil {
			t.Errorf("%s: params come twice", leg.name)
		}
		got = givenBy{where(leg, object), params.Get("output_token_ids").Exists()}
		if err := json.Unmarshal([]byte(params.Raw), &ticket); err != nil {
			t.Fatal(err)
		}
	}
	return got, ticket
}

// where names the object of an answer that has params.
func where(leg versionLeg, object gjson.Result) string {
	kind := object.Get("type").String()
	switch {
	case leg.body["stream"] != true:
		return inWhole
	case kind == "message_delta":
		return onDelta
	case slices.Contains([]string{"response.completed", "response.incomplete"}, kind):
		return onEnd
	case object.Get("choices.0.finish_reason").String() != "":
		return onFinish
	}
	return "another event: " + object.Raw
}
