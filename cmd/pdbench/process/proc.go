package process

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// procRoot is where Linux tells of processes.
const procRoot = "/proc"

// tick is the unit of times in /proc/PID/stat, USER_HZ of every architecture that Go runs on. The kernel rounds down to it what it has
// counted in nanoseconds, so that a difference of two readings is off by one tick at most, of the sum.
const tick = 10 * time.Millisecond

// processTimes is a line of /proc/PID/stat.
type processTimes struct {
	parent int
	CPU    time.Duration // user and system, of itself and of children that it has waited for
}

// parseTimes reads a line of /proc/PID/stat. The second field is the name of the program in parentheses, which may hold anything, such as
// spaces and parentheses; what follows the last one is fixed (proc_pid_stat(5)).
func parseTimes(line string) (processTimes, error) {
	end := strings.LastIndexByte(line, ')')
	fields := strings.Fields(line[end+1:])
	if end < 0 || len(fields) < 15 {
		return processTimes{}, fmt.Errorf("%q is no line of /proc/PID/stat", line)
	}
	number := func(field int) (n int64, err error) { return strconv.ParseInt(fields[field-3], 10, 64) } // state, the third, comes first
	parent, err := number(4)
	if err != nil {
		return processTimes{}, fmt.Errorf("parent in /proc/PID/stat: %w", err)
	}
	times := processTimes{parent: int(parent)}
	for field := 14; field <= 17; field++ { // utime, stime, cutime, cstime
		ticks, err := number(field)
		if err != nil {
			return processTimes{}, fmt.Errorf("time in /proc/PID/stat: %w", err)
		}
		times.CPU += time.Duration(ticks) * tick
	}
	return times, nil
}

// parseMemory reads VmRSS and VmHWM of /proc/PID/status, in bytes.
func parseMemory(status string) (resident, peak int64, err error) {
	found := 0
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		var into *int64
		switch name {
		case "VmRSS":
			into = &resident
		case "VmHWM":
			into = &peak
		default:
			continue
		}
		kib, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		n, err := strconv.ParseInt(kib, 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("%s in /proc/PID/status: %w", name, err)
		}
		*into = n << 10
		found++
	}
	if found != 2 {
		return 0, 0, fmt.Errorf("%d of VmRSS and VmHWM in /proc/PID/status", found)
	}
	return resident, peak, nil
}

// Usage is what a process uses together with all that it has started: nginx works in a child.
type Usage struct {
	CPU            time.Duration
	Resident, Peak int64
}

// FS is /proc.
type FS struct{ fs.FS }

// OpenFS returns that of this system.
func OpenFS() FS { return FS{os.DirFS(procRoot)} }

// Usage reads what the process and its descendants have used. Pages that they share count once for each.
func (p FS) Usage(pid int) (Usage, error) {
	of, err := p.family(pid)
	if err != nil {
		return Usage{}, err
	}
	var sum Usage
	for member, times := range of {
		status, err := fs.ReadFile(p, strconv.Itoa(member)+"/status")
		if err != nil {
			if member != pid {
				continue // it has ended since, and its time is its parent's
			}
			return Usage{}, err
		}
		resident, peak, err := parseMemory(string(status))
		if err != nil {
			return Usage{}, fmt.Errorf("process %d: %w", member, err)
		}
		sum.CPU += times.CPU
		sum.Resident += resident
		sum.Peak += peak
	}
	return sum, nil
}

// family returns the times of a process and of its descendants.
func (p FS) family(pid int) (map[int]processTimes, error) {
	entries, err := fs.ReadDir(p, ".")
	if err != nil {
		return nil, err
	}
	all := map[int]processTimes{}
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := fs.ReadFile(p, entry.Name()+"/stat")
		if err != nil {
			continue // it has ended
		}
		if all[id], err = parseTimes(string(line)); err != nil {
			return nil, err
		}
	}
	if _, ok := all[pid]; !ok {
		return nil, fmt.Errorf("process %d has ended", pid)
	}
	members := map[int]processTimes{pid: all[pid]}
	for grown := true; grown; {
		grown = false
		for id, times := range all {
			_, in := members[id]
			if _, child := members[times.parent]; child && !in {
				members[id], grown = times, true
			}
		}
	}
	return members, nil
}

// ResetPeak begins VmHWM of a process and its descendants anew (proc_pid_clear_refs(5)).
func (p FS) ResetPeak(pid int) error {
	of, err := p.family(pid)
	if err != nil {
		return err
	}
	for member := range of {
		if err := os.WriteFile(filepath.Join(procRoot, strconv.Itoa(member), "clear_refs"), []byte("5"), 0); err != nil && member == pid {
			return err
		}
	}
	return nil
}
