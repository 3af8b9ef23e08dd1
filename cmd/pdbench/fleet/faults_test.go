package fleet

import (
	"strings"
	"testing"
)

func TestShowFaults_FaultsOnly(t *testing.T) {
	const failed = `{"level":"INFO","msg":"hand-back","outcome":"failed"}` + "\n"
	log := `{"level":"WARN","msg":"turn"}` + "\n" + `{"level":"INFO","msg":"serving"}` + "\n" + `{"level":"INFO","msg":"hand-back","outcome":"done"}` + "\n" +
		strings.Repeat(failed, mostShown+2) + `{"level":"WARN","msg":"redis"}` + "\n" + "panic: no log\n"
	var out strings.Builder
	ShowFaults([]byte(log), &out)
	if want := strings.Repeat(failed, mostShown) + `{"level":"WARN","msg":"redis"}` + "\n" + "panic: no log\n"; out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}
