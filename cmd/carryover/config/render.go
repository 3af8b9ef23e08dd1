package config

import (
	"carryover/upstream"
)

// renderName is the name of the fleet's render server in logs and findings.
const renderName = "render"

// validateRender checks the address of the server that renders for the fleet.
func validateRender(v *validation, c *ConversationConfig) {
	if raw := c.Render; raw != "" {
		if _, ok := parseInstanceURL(raw); !ok {
			v.fault("conversation.render", raw, "http://host[:port] or https://host[:port], without path, query and user")
		}
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
