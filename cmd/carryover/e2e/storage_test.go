package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"carryover/cmd/carryover/config"
)

// Storage that loses what it has costs time and nothing else.
func TestStorage_Losses(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{connector: config.ConnectorLMCacheStorage, alone: true})
	r.asAlone(t, 1)
	stored, err := filepath.Glob(r.folder + "/*")
	if err != nil || len(stored) == 0 {
		t.Fatalf("stored %v (%v)", stored, err)
	}
	for i, chunk := range stored {
		if i%2 == 0 {
			err = os.Truncate(chunk, 10)
		} else {
			err = os.Remove(chunk)
		}
		noError(t, err)
	}
	for _, instance := range r.all("") {
		instance.Restart()
	}
	r.hangUp()
	r.look()
	r.asAlone(t, 1)
	r.verify(t, pins{})
}
