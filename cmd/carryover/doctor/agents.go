package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/app"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// agents examines what turns of the Messages and Responses APIs need. Without rendering such turns reuse nothing; that is the only
// warning about them, because deployments without agents are healthy without it.
func (d *doctor) agents(ctx context.Context, p *app.Proxy) {
	if !d.asksTokens() || d.options.noTurns {
		return
	}
	renders := make([]bool, len(d.prefill))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(askedAtOnce)
	for i, e := range d.prefill {
		engine := p.Fleet.Engine(e.Role, e.Name)
		if engine == nil || !e.answers || len(e.models) == 0 || !engine.Last().Known() {
			continue // already reported
		}
		group.Go(func() error {
			renders[i] = d.renders(ctx, engine.Last(), e)
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
	for _, rendered := range renders {
		if rendered {
			d.names()
			return
		}
	}
}

// sampleWords is how many words the user says in the sample: more tokens than any template adds behind them.
const sampleWords = 200

// sample returns an agent's request: a user's message and, with inline, a system message at the end, as agents add them.
func sample(model string, inline bool) ([]byte, error) {
	messages := []map[string]string{{"role": "user", "content": strings.TrimSpace(strings.Repeat("again ", sampleWords))}}
	if inline {
		messages = append(messages, map[string]string{"role": "system", "content": "Tokens are left."})
	}
	return json.Marshal(map[string]any{"model": model, "max_tokens": 1, "system": "Be brief.", "messages": messages})
}

// render renders a sample for a prefill instance.
func render(ctx context.Context, incarnation *fleet.Incarnation, model string, inline bool) ([]uint32, *body.Request, error) {
	raw, err := sample(model, inline)
	if err != nil {
		return nil, nil, err
	}
	req, err := body.ParseRequest(body.Messages, raw)
	if err != nil {
		return nil, nil, err
	}
	prompt, err := incarnation.Prompts.Read(ctx, req, "")
	return prompt.IDs, req, err
}

// renders examines whether and how prompts can be rendered for a prefill instance, and reports whether they can.
func (d *doctor) renders(ctx context.Context, incarnation *fleet.Incarnation, e *examined) bool {
	by := "it"
	if d.cfg.Proof.Render != "" {
		by = d.cfg.Proof.Render + " (--render)"
	}
	model := e.models[0]
	ids, req, err := render(ctx, incarnation, model, false)
	switch {
	case errors.Is(err, facts.ErrNoRender) && d.cfg.Proof.Render == "":
		d.report.found(e.where(), codeRenderOff, "it renders no prompts of /v1/messages and /v1/responses: turns of agents reuse nothing of decode", "{name}", e.Name)
		return false
	case errors.Is(err, facts.ErrNoRender):
		d.report.found(e.where(), codeRenderFails, by+" does not serve /v1/messages/render")
		return false
	case err != nil:
		d.report.found(e.where(), codeRenderFails, by+" does not render: "+renderFault(err))
		return false
	}
	d.report.holds(e.where(), codeRenderOff, "")
	d.report.holds(e.where(), codeRenderFails, "")
	what := ""
	// An instance that reports no count is not judged.
	if n, err := incarnation.Prompts.Count(ctx, req, ""); err == nil && n != len(ids) {
		what = fmt.Sprintf("%s makes %d tokens of a prompt, and %s counts %d", by, len(ids), e.Name, n)
	}
	d.report.check(e.where(), codeRenderDiffers, what, "{name}", e.Name)
	d.inlineSystem(ctx, incarnation, e, ids)
	return true
}

// inlineSystem reports whether a system message at the end of a conversation changes its beginning. Template and generation prompt are
// unknown, so it compares two renderings: the beginning changes if they differ before half of the user's text.
func (d *doctor) inlineSystem(ctx context.Context, incarnation *fleet.Incarnation, e *examined, ids []uint32) {
	later, _, err := render(ctx, incarnation, e.models[0], true)
	what, same := "", 0
	for same < min(len(ids), len(later)) && ids[same] == later[same] {
		same++
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		what = "a conversation with a system message at its end is not rendered: " + renderFault(err)
	case same+sampleWords/2 < len(ids):
		what = "a system message at the end of a conversation is rendered at its beginning"
	}
	d.report.check(e.where(), codeSystemMerged, what)
}

// renderFault returns why a render endpoint gave no ids, in the endpoint's own words if it has any.
func renderFault(err error) string {
	if leg, ok := errors.AsType[*upstream.LegError](err); ok && leg.Message != "" {
		return fmt.Sprintf("status %d, %s", leg.Status, leg.Message)
	}
	return err.Error()
}

// names examines the names under which decode serves its model. An adapter has another path.
func (d *doctor) names() {
	for _, e := range d.decode {
		if len(e.models) == 0 {
			continue
		}
		first, what := e.models[0], ""
		var others []string
		for _, name := range e.models[1:] {
			if root := e.roots[name]; root != "" && root == e.roots[first] {
				others = append(others, name)
			}
		}
		if len(others) > 0 {
			what = fmt.Sprintf("its model has other names beside %q: %q", first, others)
		}
		d.report.check(e.where(), codeSeveralNames, what, "{model}", shellWord("{model}", first))
	}
}
