package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUsage_CountsChildrenAndThoseThatHaveEnded(t *testing.T) {
	root := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for pid, stat := range map[string][3]string{ // parent, its own time, that of children that have ended
		"10": {"1", "1", "5"}, // the master
		"11": {"10", "2", "0"},
		"12": {"11", "3", "0"},
		"13": {"1", "100", "0"}, // another's
		"14": {"10", "0", "0"},  // ended while it was looked at
	} {
		file(pid+"/stat", pid+" (a) R 9 (x)) S "+stat[0]+" 0 0 0 0 0 0 0 0 0 "+stat[1]+" 0 "+stat[2]+strings.Repeat(" 0", 28))
		if pid != "14" {
			file(pid+"/status", "Name:\tVmRSS: 9\nVmHWM:\t 3 kB\nVmRSS:\t 2 kB\n")
		}
	}
	file("loadavg", "0")
	got, err := usageIn(root, 10)
	if want := (Usage{11 * tick, 3 * 2 << 10, 3 * 3 << 10}); got != want || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := usageIn(root, 99); err == nil {
		t.Error("a process that is not there was read without a fault")
	}
	if _, err := usageIn(root, 14); err == nil {
		t.Error("a process without memory was read without a fault")
	}
}

func TestUsage_OfThisProcess(t *testing.T) {
	if err := ResetPeak(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	got, err := UsageOf(os.Getpid())
	if err != nil || got.Resident <= 0 || got.Peak < got.Resident/2 {
		t.Errorf("got %+v, %v", got, err)
	}
}
