package process

import (
	"os"
	"testing"
	"testing/fstest"
	"time"
)

func TestParseTimes(t *testing.T) {
	tests := []struct {
		name, line string
		want       processTimes
		fault      bool
	}{
		{"a plain program", "7 (nginx) S 3 7 7 0 -1 4194560 1 2 3 4 10 20 30 40 20 0 1 0", processTimes{3, 1000 * time.Millisecond}, false},
		{"a name that looks like fields", "7 (a) R 9 (b c)) S 3 7 7 0 -1 4194560 1 2 3 4 1 0 0 1 20 0", processTimes{3, 20 * time.Millisecond}, false},
		{"no name", "7 nginx S 3", processTimes{}, true},
		{"too short", "7 (nginx) S 3 7 7", processTimes{}, true},
		{"a time that is no number", "7 (nginx) S 3 7 7 0 -1 4194560 1 2 3 4 x 20 30 40 20 0", processTimes{}, true},
		{"a parent that is no number", "7 (nginx) S x 7 7 0 -1 4194560 1 2 3 4 1 20 30 40 20 0", processTimes{}, true},
	}
	for _, tt := range tests {
		got, err := parseTimes(tt.line)
		if got != tt.want || (err != nil) != tt.fault {
			t.Errorf("%s: got %v, %v; want %v, fault %t", tt.name, got, err, tt.want, tt.fault)
		}
	}
}

func TestParseMemory(t *testing.T) {
	resident, peak, err := parseMemory("Name:\tVmRSS: 9\nVmPeak:\t 99 kB\nVmHWM:\t   20 kB\nVmRSS:\t   10 kB\n")
	if resident != 10<<10 || peak != 20<<10 || err != nil {
		t.Errorf("got %d, %d, %v; want %d, %d", resident, peak, err, 10<<10, 20<<10)
	}
	for _, status := range []string{"Name:\tx\n", "VmHWM: 20 kB\n", "VmHWM: 20 kB\nVmRSS: much\n"} {
		if _, _, err := parseMemory(status); err == nil {
			t.Errorf("%q was read without a fault", status)
		}
	}
}

func TestUsage_CountsChildrenAndThoseThatHaveEnded(t *testing.T) {
	stat := func(parent, own, waited string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("1 (x) S " + parent + " 0 0 0 0 0 0 0 0 0 " + own + " 0 " + waited + " 0 0 0")}
	}
	status := &fstest.MapFile{Data: []byte("VmHWM:\t 3 kB\nVmRSS:\t 2 kB\n")}
	files := FS{fstest.MapFS{
		"10/stat": stat("1", "1", "5"), "10/status": status, // the master, one of whose children has ended
		"11/stat": stat("10", "2", "0"), "11/status": status, // its child
		"12/stat": stat("11", "3", "0"), "12/status": status, // and a child of that
		"13/stat": stat("1", "100", "0"), "13/status": status, // another's
		"14/stat":    stat("10", "0", "0"), // ended while it was looked at
		"self/stat":  stat("10", "7", "0"),
		"loadavg":    {Data: []byte("0")},
		"self/other": {},
	}}
	got, err := files.Usage(10)
	if want := (Usage{11 * tick, 3 * 2 << 10, 3 * 3 << 10}); got != want || err != nil {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if _, err := files.Usage(99); err == nil {
		t.Error("a process that is not there was read without a fault")
	}
}

func TestProc_OfThisProcess(t *testing.T) {
	proc := OpenFS()
	if err := proc.ResetPeak(os.Getpid()); err != nil {
		t.Fatal(err)
	}
	got, err := proc.Usage(os.Getpid())
	if err != nil || got.Resident <= 0 || got.Peak < got.Resident/2 {
		t.Errorf("got %+v, %v", got, err)
	}
}
