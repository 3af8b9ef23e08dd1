package process

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/procfs"
)

// tick is the unit of times in /proc/PID/stat, USER_HZ of every architecture that Go runs on. The kernel counts nanoseconds and rounds the
// sum down to ticks, so the difference of two readings is wrong by one tick at most.
const tick = 10 * time.Millisecond

// Usage is the resource use of a process and its descendants; nginx works in a child.
type Usage struct {
	CPU            time.Duration // user and system, also of children that have ended
	Resident, Peak int64
}

// UsageOf reads the use of a process and its descendants. Each of them counts the pages that they share.
func UsageOf(pid int) (Usage, error) { return usageIn(procfs.DefaultMountPoint, pid) }

func usageIn(root string, pid int) (sum Usage, err error) {
	of, err := family(root, pid)
	for _, m := range of {
		status, err := m.NewStatus()
		switch {
		case m.PID == pid && (err != nil || status.VmRSS == 0):
			return Usage{}, fmt.Errorf("process %d: %w", pid, cmp.Or(err, errors.New("it has no memory")))
		case err != nil:
			continue // it has ended, and its time belongs to its parent
		}
		sum.CPU += time.Duration(int(m.times.UTime+m.times.STime)+m.times.CUTime+m.times.CSTime) * tick
		sum.Resident += int64(status.VmRSS)
		sum.Peak += int64(status.VmHWM)
	}
	return sum, err
}

type member struct {
	procfs.Proc
	times procfs.ProcStat
}

// family returns a process and its descendants.
func family(root string, pid int) (members []member, err error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return nil, err
	}
	all, err := fs.AllProcs()
	if err != nil {
		return nil, err
	}
	in := map[int]bool{}
	for grown := true; grown; {
		grown = false
		for _, p := range all {
			if in[p.PID] {
				continue
			}
			times, err := p.Stat() // an error means that it has ended
			if err == nil && (p.PID == pid || in[times.PPID]) {
				in[p.PID], grown = true, true
				members = append(members, member{p, times})
			}
		}
	}
	if !in[pid] {
		return nil, fmt.Errorf("process %d has ended", pid)
	}
	return members, nil
}

// ResetPeak resets VmHWM of a process and its descendants (proc_pid_clear_refs(5)).
func ResetPeak(pid int) error {
	of, err := family(procfs.DefaultMountPoint, pid)
	for _, m := range of {
		if err := os.WriteFile(filepath.Join(procfs.DefaultMountPoint, strconv.Itoa(m.PID), "clear_refs"), []byte("5"), 0); err != nil && m.PID == pid {
			return err
		}
	}
	return err
}
