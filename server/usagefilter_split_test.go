package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// splits are an event's data over several lines, which is one event all the same (WHATWG HTML 9.2.6).
func splits() map[string]func(event string) string {
	return map[string]func(event string) string{
		"between members": func(e string) string { return strings.Replace(e, `,"usage"`, ",\ndata: \"usage\"", 1) },
		"in the list":     func(e string) string { return strings.Replace(e, `"choices":[]`, "\"choices\":[\ndata: ]", 1) },
		"in the usage":    func(e string) string { return strings.Replace(e, `"usage":{`, "\"usage\":\r\ndata:{", 1) },
		"before":          func(e string) string { return "\ndata: " + e },
		"behind":          func(e string) string { return e + "\ndata: " },
		"with a name":     func(e string) string { return strings.Replace(e, `,"usage"`, "\nid: 7\ndata: ,\"usage\"", 1) },
		"with params":     func(e string) string { return strings.TrimSuffix(e, "}") + ",\ndata: \"kv_transfer_params\":null}" },
	}
}

// The usage that we have asked for brings the finish its fingerprint, on however many lines it comes.
func TestUsageFilter_UsageOverSeveralLinesCostsTheClientNothing(t *testing.T) {
	for name, split := range splits() {
		for what, splitFinish := range map[string]bool{"usage": false, "usage and finish": true} {
			t.Run(name+" "+what, func(t *testing.T) {
				r := newRig(t, setup{cfg: byTokens})
				r.prefill[0].always(prefillsIDs)
				r.decode[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
					a := answerOf(l)
					a.usage = ""
					events := a.events()
					finish := len(events) - 2
					if splitFinish {
						events[finish] = strings.Replace(events[finish], `"choices":[{`, "\"choices\":[\ndata: {\ndata: ", 1)
					}
					usage := fmt.Sprintf(`{"id":"cmpl-%s","object":"text_completion","choices":[],"usage":%s,"system_fingerprint":"vllm-0.33"}`, l.id(), usageOf(a))
					say(w, append(events[:finish+1:finish+1], split(usage), "[DONE]")...)
				})
				p := r.sendIDs("c", true, count(100, 200)...)
				r.wantOK(p, "miss;")
				r.wantStored(1, "yes")
				var last string
				for _, e := range strings.Split(p.body, "\n\n") {
					if strings.Contains(e, `"finish_reason":"stop"`) {
						last = dataOf(e)
					}
				}
				var finish struct {
					Choices     []struct{ Text string }
					Fingerprint string `json:"system_fingerprint"`
				}
				if err := json.Unmarshal([]byte(last), &finish); err != nil || finish.Fingerprint != "vllm-0.33" || len(finish.Choices) != 1 {
					t.Errorf("the finish is %q (%v), want one choice and the fingerprint", last, err)
				}
				if strings.Contains(p.body, `"usage"`) || strings.Count(p.body, `"finish_reason":"stop"`) != 1 || strings.Contains(p.body, "kv_transfer_params") {
					t.Errorf("got\n%s\nwant one finish, no usage and no params", p.body)
				}
			})
		}
	}
}

// dataOf joins the data lines of an event.
func dataOf(event string) string {
	var data []string
	for line := range strings.Lines(event) {
		if value, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "data:"); ok {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	return strings.Join(data, "\n")
}
