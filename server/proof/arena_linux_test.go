package proof

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
)

// mapped is how many KiB of addresses this process has.
func mapped(tb testing.TB) (kib int) {
	tb.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		tb.Fatal(err)
	}
	_, size, _ := bytes.Cut(status, []byte("VmSize:"))
	if _, err := fmt.Sscan(string(size), &kib); err != nil {
		tb.Fatal(err)
	}
	return kib
}

// A server that is dropped gives its room's addresses back.
func TestArena_ThatIsDroppedIsUnmapped(t *testing.T) {
	const arenas, each = 20, 1 << 30
	before := mapped(t)
	first := NewArena(each)
	if grown := mapped(t) - before; grown < each>>11 { // rooms of other tests may go meanwhile
		t.Fatalf("addresses grow by %d KiB with a room of %d", grown, each>>10)
	}
	runtime.KeepAlive(first)
	for range arenas {
		retain(NewArena(each), []uint32{1, 2, 3}).Free()
	}
	for mapped(t)-before > arenas/2*each>>10 { // not all: the runtime and the race detector reserve some too
		runtime.GC()
	}
}
