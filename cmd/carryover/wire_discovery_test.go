package main

import (
	"slices"
	"testing"

	"carryover/upstream"
)

// TestInherited_WhoAnnouncesItself: with connectors whose engines have to say where they are, a list alone makes no instance.
func TestInherited_WhoAnnouncesItself(t *testing.T) {
	listed := upstream.Instance{Role: upstream.RoleDecode, Name: "d1", BaseURL: "http://d1:1"}
	announced := upstream.Instance{Role: upstream.RoleDecode, Name: "d2", BaseURL: "http://d2:1", Announced: upstream.Announcement{Address: "d2:2"}}
	for connector, want := range map[string][]string{
		connectorP2PNCCL: {"d2"}, connectorMoRIIO: {"d2"}, connectorNIXL: {"d1", "d2"}, connectorMooncake: {"d1", "d2"},
	} {
		cfg := defaultConfig()
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
