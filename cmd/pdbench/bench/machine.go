package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"

	"carryover/cmd/pdbench/contender"
)

// machine is what a run was on, and what ran.
type machine struct {
	Cores    int      `json:"cores"`
	Model    string   `json:"model"`
	Memory   int      `json:"memory_gib"`
	Kernel   string   `json:"kernel"`
	Go       string   `json:"go"`
	Versions []string `json:"versions"` // of contenders
}

// String is a line for people.
func (m machine) String() string {
	return strings.Join(append([]string{fmt.Sprintf("%d cores of %s", m.Cores, m.Model), fmt.Sprintf("%d GiB", m.Memory), "Linux " + m.Kernel, m.Go}, m.Versions...), ", ")
}

// lookAround reads what the machine and the contenders are.
func lookAround(ctx context.Context, s *contender.Site) machine {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version(), Kernel: readWord("/proc/sys/kernel/osrelease")}
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	m.Model = strings.TrimSpace(valueOf(string(cpus), "model name"))
	memory, _ := os.ReadFile("/proc/meminfo")
	if kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(valueOf(string(memory), "MemTotal")), " kB")); err == nil {
		m.Memory = (kib + 1<<19) >> 20
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

// valueOf returns what stands behind a name and a colon, in the first line that has it.
func valueOf(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return value
		}
	}
	return ""
}

func readWord(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}
