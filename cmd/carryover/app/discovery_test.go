package app

import (
	"slices"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
)

// TestInherited_WhoAnnouncesItself: with connectors whose engines have to say where they are, a list alone makes no instance.
func TestInherited_WhoAnnouncesItself(t *testing.T) {
	listed := upstream.Instance{Role: upstream.RoleDecode, Name: "d1", BaseURL: "http://d1:1"}
	announced := upstream.Instance{Role: upstream.RoleDecode, Name: "d2", BaseURL: "http://d2:1", Announced: upstream.Announcement{Address: "d2:2"}}
	for connector, want := range map[string][]string{
		config.ConnectorMoRIIO: {"d2"}, config.ConnectorNIXL: {"d1", "d2"}, config.ConnectorMooncake: {"d1", "d2"},
	} {
		cfg := config.Default()
		cfg.Connector.Name = connector
		var names []string
		for _, i := range newInherited(cfg).completed([]upstream.Instance{listed, announced}) {
			names = append(names, i.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: got %v, want %v", connector, names, want)
		}
	}
}
