package config

import (
	"carryover/upstream"
)

// renderName is the name of the fleet's render server in logs and findings.
const renderName = "render"

// validateRender checks the address of the server that renders for the fleet.
func validateRender(v *validation, c *ConversationConfig) {
	if _, err := upstream.ParseBaseURL(c.Render); c.Render != "" && err != nil {
		v.fault("conversation.render", c.Render, wantBaseURL)
	}
}

// RenderServer returns that server, nil if prefill instances render. Its work counts as prefill's.
func RenderServer(cfg ConversationConfig) *upstream.Instance {
	if cfg.Render == "" {
		return nil
	}
	instance, err := upstream.NewInstance(upstream.RolePrefill, renderName, cfg.Render)
	if err != nil {
		return nil // validateRender has refused it
	}
	return &instance
}
