package doctor

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// of returns the finding of a code at a place, the zero value for none.
func (d *doctored) of(where, code string) finding {
	i := slices.IndexFunc(d.Findings, func(f finding) bool { return f.Code == code && strings.HasPrefix(f.Where, where) })
	if i < 0 {
		return finding{}
	}
	return d.Findings[i]
}

// startRender starts what answers at the address of --render.
func startRender(t *testing.T, handler http.Handler) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.URL
}

// What a deployment without agents lacks is told, and is no fault.
func TestDoctor_SaysThatNothingIsRendered(t *testing.T) {
	w := newWard(t, func(_, d *vllmsim.Config) { d.Models = []string{"sim", "other"} })
	w.options.strict = true
	told := w.examine(t)
	f := told.of(config.RolePrefill, codeRenderOff)
	if len(told.wrong()) > 0 || f.Severity != severityOK || !strings.Contains(f.What, "reuse nothing") ||
		!strings.Contains(f.Fix, "--enable-scale-out on "+strings.TrimPrefix(f.Where, "prefill ")) || !strings.Contains(f.Fix, "--render URL") {
		t.Errorf("%+v, and %+v", f, told.wrong())
	}
	var text strings.Builder
	if err := (&doctorReport{findings: told.Findings}).text(&text, false); err != nil || !strings.Contains(text.String(), "ok    "+codeRenderOff) {
		t.Errorf("the report does not say so: %v, %s", err, text.String())
	}
	for _, code := range []string{codeRenderFails, codeRenderDiffers, codeSystemMerged, codeSeveralNames} {
		if f := told.of("", code); f != (finding{}) {
			t.Errorf("%+v", f)
		}
	}
}

func TestDoctor_IsQuietOnAFleetForAgents(t *testing.T) {
	for _, template := range []string{vllmsim.DefaultConfig().Template, vllmsim.TemplateThinkingPrompt} {
		w := newWard(t, func(p, d *vllmsim.Config) {
			p.Render, d.Adapters = true, []string{"adapter"}
			p.Template, d.Template = template, template
		})
		told := w.examine(t)
		for _, f := range told.wrong() {
			if slices.Contains(agentCodes(), f.Code) {
				t.Errorf("%s: %+v", template, f)
			}
		}
		for _, code := range agentCodes() {
			if told.of("", code).What == "" {
				t.Errorf("%s: %s was not looked at", template, code)
			}
		}
		nothingLeft(t, []*vllmsim.Instance{w.prefill}, []*vllmsim.Instance{w.decode})
	}
}

// Other servers than vLLM tell no path, and nothing of which names are of one model.
func TestDoctor_NamesWithoutPathsAreNotJudged(t *testing.T) {
	d := &doctor{report: newDoctorReport(), decode: []*examined{{models: []string{"a", "b"}, roots: map[string]string{}}, {}}}
	d.names()
	if len(d.report.findings) != 1 || d.report.findings[0].Severity != severityOK {
		t.Errorf("%+v", d.report.findings)
	}
}

func agentCodes() (codes []string) {
	for _, d := range agentDiagnoses() {
		codes = append(codes, d.code)
	}
	return codes
}

func TestDoctor_FindsWhatKeepsAgentsFromReuse(t *testing.T) {
	fault := func(f vllmsim.Fault) func(*testing.T, *ward) {
		return func(t *testing.T, w *ward) {
			if err := w.prefill.SetFault(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, row := range []struct {
		name      string
		change    func(prefill, decode *vllmsim.Config)
		fault     func(t *testing.T, w *ward)
		render    func(t *testing.T) http.Handler // of --render, nil for none
		code      string
		what, fix string
	}{
		{name: "merged system messages", change: func(p, d *vllmsim.Config) { p.MergeSystem, d.MergeSystem = true, true },
			code: codeSystemMerged, what: "at its beginning", fix: "CLAUDE_CODE_TOTAL_TOKENS_REMINDER=off"},
		{name: "several names", change: func(p, d *vllmsim.Config) {
			p.Models, d.Models, d.Adapters = []string{"sim", "claude"}, []string{"sim", "claude"}, []string{"adapter"}
		}, code: codeSeveralNames, what: `beside "sim": ["claude"]`, fix: "--served-model-name sim"},
		{name: "render that fails", fault: fault(vllmsim.Fault{Kind: vllmsim.FaultStatus, Route: "/v1/messages/render", Status: 500}),
			code: codeRenderFails, what: "it does not render: ", fix: "--verbose"},
		{name: "system messages that are refused", render: refusesSystem,
			code: codeSystemMerged, what: "status 400, no system messages", fix: "--chat-template"},
		{name: "a server without render", render: serves(http.NotFound), code: codeRenderFails, what: "(--render) does not serve", fix: "log"},
		{name: "a server of another model", render: serves(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"token_ids":[1,2,3]}`) }),
			code: codeRenderDiffers, what: "makes 3 tokens of a prompt", fix: "--chat-template"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			w := newWard(t, func(p, d *vllmsim.Config) {
				p.Render = true
				if row.change != nil {
					row.change(p, d)
				}
			})
			if row.fault != nil {
				row.fault(t, w)
			}
			if row.render != nil {
				w.args = append(w.args, "--render", startRender(t, row.render(t)))
			}
			told := w.examine(t)
			if f := told.find(t, row.code); !strings.Contains(f.What, row.what) || !strings.Contains(f.Fix, row.fix) || strings.ContainsAny(f.Fix, "{}") {
				t.Errorf("%+v, want %q and a fix with %q", f, row.what, row.fix)
			}
			for _, f := range told.wrong() {
				if f.Code != row.code {
					t.Errorf("%+v, which is not the fault", f)
				}
			}
		})
	}
}

// serves answers every request alike.
func serves(handler http.HandlerFunc) func(*testing.T) http.Handler {
	return func(*testing.T) http.Handler { return handler }
}

// refusesSystem renders as the simulated engine does, but no conversation with a system message at its end.
func refusesSystem(t *testing.T) http.Handler {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Render = true
	engine := testrig.StartInstance(t, cfg, "")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(string(body), `"role":"system"`) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"no system messages","type":"BadRequestError"}}`)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		engine.ServeHTTP(w, r)
	})
}
