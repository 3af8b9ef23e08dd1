package page

import (
	"bytes"
	"flag"
	"image/png"
	"os"
	"testing"
)

const (
	documented    = "../../docs/page.png" // the README shows it
	pictureWidth  = 1200
	pictureHeight = 1180
	pictureLimit  = 200 << 10 // bytes
)

var update = flag.Bool("update", false, "write docs/page.png anew")

// TestPage_IsPicturedInTheDocuments takes the picture that the README shows: the demo, after its conversation. With -update it is written.
func TestPage_IsPicturedInTheDocuments(t *testing.T) {
	t.Parallel()
	demo := startDemo(t, "127.0.0.1:0").talked()
	b := startChromium(t).open(t, demo.page)
	b.prefer("prefers-color-scheme", "light")
	b.size(pictureWidth, pictureHeight)
	b.await("all turns are shown", lists(demo.held))
	shot := b.shot()
	drawn, err := png.DecodeConfig(bytes.NewReader(shot))
	must(t, err)
	if drawn.Width != pictureWidth || drawn.Height != pictureHeight || len(shot) > pictureLimit {
		t.Errorf("%d by %d pixels in %d bytes, want %d by %d in %d at most", drawn.Width, drawn.Height, len(shot), pictureWidth, pictureHeight, pictureLimit)
	}
	if *update {
		must(t, os.WriteFile(documented, shot, 0o644))
	}
	kept, err := os.ReadFile(documented)
	must(t, err)
	if old, err := png.DecodeConfig(bytes.NewReader(kept)); err != nil || old.Width != pictureWidth || len(kept) > pictureLimit {
		t.Errorf("%s has %d pixels across and %d bytes (%v): make page-picture writes it anew", documented, old.Width, len(kept), err)
	}
}
