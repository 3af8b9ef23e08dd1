package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/prometheus/procfs"

	"carryover/cmd/pdbench/contender"
)

// machine describes the computer and the programs of a run.
type machine struct {
	Cores    int      `json:"cores"`
	Model    string   `json:"model"`
	Memory   int      `json:"memory_gib"`
	Kernel   string   `json:"kernel"`
	Go       string   `json:"go"`
	Versions []string `json:"versions"` // of contenders
}

// String returns one line for people.
func (m machine) String() string {
	return strings.Join(append([]string{fmt.Sprintf("%d cores of %s", m.Cores, m.Model), fmt.Sprintf("%d GiB", m.Memory), "Linux " + m.Kernel, m.Go}, m.Versions...), ", ")
}

func lookAround(ctx context.Context, s *contender.Site) machine {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Kernel: strings.TrimSpace(string(kernel))}
	if proc, err := procfs.NewDefaultFS(); err == nil { // what is unknown stays empty
		if cpus, err := proc.CPUInfo(); err == nil && len(cpus) > 0 {
			m.Model = cpus[0].ModelName
		}
		if memory, err := proc.Meminfo(); err == nil && memory.MemTotal != nil {
			m.Memory = int(*memory.MemTotal+1<<19) >> 20
		}
	}
	nginx, _ := contender.FindNginx()
	for _, command := range [][]string{
		{s.Carryover, "version"},
		{nginx, "-v"},
		{"redis-server", "--version"},
		{s.Python, "--version"},
	} {
		text, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
		if line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n"); err == nil {
			m.Versions = append(m.Versions, line)
		}
	}
	return m
}
