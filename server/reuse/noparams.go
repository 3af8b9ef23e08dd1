package reuse

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Limits of asking an engine for its version.
const (
	versionLimit   = 5 * time.Second
	maxVersionBody = 512
)

// warnNoParams warns that answers like that of this turn bring no params, and says what helps. That depends on the version of decode, for
// which it asks in the background.
func (m *Maker) warnNoParams(p *Proving, decode *fleet.Incarnation) {
	engine, turn, api := decode.Engine(), p.record.ID(), p.request.API
	stream := p.request.Stream
	m.deps.Background("version", turn, func() {
		why, fix := upstream.WhyNoParams(m.version(engine), api, stream, false)
		m.cfg.Logger.Warn("decode sends no kv_transfer_params at the end of such answers, so nothing of them can be reused",
			"api", api.Path(), "stream", stream, "why", why, "fix", fix, "decode", engine.Name, "turn", turn)
	})
}

// version returns the version that an engine reports, "" if it reports none in time.
func (m *Maker) version(engine *fleet.Engine) string {
	ctx, cancel := context.WithTimeout(context.Background(), versionLimit)
	defer cancel()
	status, body, err := m.deps.Legs.Fetch(ctx, engine.Instance(), "/version", "", maxVersionBody)
	var told struct{ Version string }
	if err != nil || status != http.StatusOK || json.Unmarshal(body, &told) != nil {
		return ""
	}
	if _, known := upstream.ReleaseOf(told.Version); !known {
		return ""
	}
	return told.Version
}
