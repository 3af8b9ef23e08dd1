//go:build e2e

package e2e

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

	"carryover/upstream"
	"carryover/upstream/body"
)

// stockVariable is set by scripts/vllm-cpu/e2e --stock: the engines run without the plug-in.
const stockVariable = "CARRYOVER_VLLM_STOCK"

// plugged says whether the engines have the plug-in.
func plugged() bool { return os.Getenv(stockVariable) == "" }

// givenBy is what a decode leg that carries params gets: where the params are, empty if there are none, and whether they have the ids of the
// output, which the plug-in alone adds.
type givenBy struct {
	at  string
	ids bool
}

// Where params come.
const (
	inWhole  = "whole"
	onFinish = "finish chunk"
	onDelta  = "message_delta"
	onEnd    = "response's last event"
)

// wanted is what the table says of the version at hand (upstream.AnswersOf), and where params are in this form.
func wanted(t *testing.T, version string, leg versionLeg) (want givenBy) {
	t.Helper()
	stream := leg.body["stream"] == true
	row, known := upstream.AnswersOf(version, leg.api, stream)
	if !known {
		t.Fatalf("nothing is known of vLLM %s", version)
	}
	if !row.Params && (!plugged() || row.PlugIn == "") {
		return givenBy{}
	}
	want.ids = plugged() && leg.api != body.Responses
	switch {
	case !stream:
		want.at = inWhole
	case leg.api == body.Messages:
		want.at = onDelta
	case leg.api == body.Responses:
		want.at = onEnd
	default:
		want.at = onFinish
	}
	return want
}

// versionLeg is one decode leg of the row.
type versionLeg struct {
	name, path string
	api        body.API
	body       object
}

func versionLegs() (legs []versionLeg) {
	for _, api := range []struct {
		name, path string
		api        body.API
	}{
		{"chat", pathChat, body.Chat}, {"text", pathText, body.Text},
		{"messages", pathMessages, body.Messages}, {"responses", pathResponses, body.Responses},
	} {
		for _, form := range []string{"whole", "stream"} {
			body := agentBody(api.path, []string{about + " " + api.name + form}, nil, blockSize)
			if api.path == pathText {
				body["prompt"] = about + form
			}
			body["stream"] = form == "stream"
			legs = append(legs, versionLeg{api.name + ", " + form, api.path, api.api, body})
		}
	}
	return legs
}

// gives is the row of the version at hand.
func (s *suite) gives(t *testing.T) string {
	version := s.version(t)
	for _, leg := range versionLegs() {
		got, ticket := s.given(t, leg, s.handOver(t, leg))
		if want := wanted(t, version, leg); got != want {
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
func (s *suite) handOver(t *testing.T, leg versionLeg) object {
	t.Helper()
	body := asked{body: leg.body}.with(object{
		"stream": false, choose(leg.path == pathResponses, "max_output_tokens", "max_tokens"): 1, paramsName: firstParams(),
	}).body
	first := s.askAgentAt(t, s.prefill.url, leg.path, body)
	params := object{}
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
	noError(t, err)
	defer resp.Body.Close()
	var answer struct {
		Version string `json:"version"`
	}
	noError(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Version
}

// given asks decode, and says where its params are and what they are.
func (s *suite) given(t *testing.T, leg versionLeg, handOver object) (givenBy, object) {
	t.Helper()
	body := asked{body: leg.body}.with(object{paramsName: handOver}).body
	resp, err := s.client.Post(s.decode.url+leg.path, "application/json", strings.NewReader(string(encode(body))))
	noError(t, err)
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
	var ticket object
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
		noError(t, json.Unmarshal([]byte(params.Raw), &ticket))
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
