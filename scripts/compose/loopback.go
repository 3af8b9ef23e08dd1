package compose

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// Image is the name of the image that the Dockerfile makes.
const Image = "carryover"

// Loopback maps the services of a project to processes of this machine. Each service has an address of loopback, so that all keep
// their ports, and a folder that stands for the root of its container, with its mounts and secrets.
type Loopback struct {
	project   *types.Project
	binary    string            // the program in the image
	root      string            // with a folder for each service
	addresses map[string]string // by name of a service or alias
	names     *regexp.Regexp
}

// NewLoopback gives the services addresses of the network 127.a.b.0/24, and folders below root. It fails if the profile has a service
// that lacks a process here, or if two services share a name.
func NewLoopback(project *types.Project, binary, root string, a, b byte) (*Loopback, error) {
	l := &Loopback{project: project, binary: binary, root: root, addresses: map[string]string{}}
	for i, name := range project.ServiceNames() {
		address := fmt.Sprintf("127.%d.%d.%d", a, b, i+10)
		service := project.Services[name]
		called := []string{name}
		for _, network := range service.Networks {
			if network != nil {
				called = append(called, network.Aliases...)
			}
		}
		for _, name := range called {
			if other, taken := l.addresses[name]; taken && other != address {
				return nil, fmt.Errorf("%s: two services have this name", name)
			}
			l.addresses[name] = address
		}
	}
	quoted := make([]string, 0, len(l.addresses))
	for _, name := range slices.SortedFunc(maps.Keys(l.addresses), longestFirst) {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	// A name is an address where a port follows it, or where it is the host of a URL; nginx calls its list of replicas like a service.
	names := strings.Join(quoted, "|")
	var err error
	l.names, err = regexp.Compile(`(^|[/@\s="'])(` + names + `)(:\d+)|(@)(` + names + `)(/|$)`)
	return l, err
}

func longestFirst(a, b string) int {
	if len(a) != len(b) {
		return len(b) - len(a)
	}
	return strings.Compare(a, b)
}

// Address is where a service is reached.
func (l *Loopback) Address(service string) string { return l.addresses[service] }

// Process is what a service comes to here.
type Process struct {
	Args   []string
	Env    []string
	Folder string // to work in
}

// Process writes the files of a service and returns its process.
func (l *Loopback) Process(name string) (Process, error) {
	service := l.project.Services[name]
	if err := l.place(name); err != nil {
		return Process{}, err
	}
	args := slices.Concat(service.Entrypoint, service.Command)
	if service.Image == Image && len(service.Entrypoint) == 0 {
		entrypoint, err := l.entrypoint()
		if err != nil {
			return Process{}, err
		}
		args = slices.Concat(entrypoint, service.Command)
	}
	mapped, err := l.args(name, args)
	if err != nil {
		return Process{}, err
	}
	if filepath.Base(mapped[0]) == "redis-server" {
		mapped = append(mapped, "--bind", l.addresses[name]) // it listens at all addresses of its container
	}
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, variable := range slices.Sorted(maps.Keys(service.Environment)) {
		if value := service.Environment[variable]; value != nil {
			env = append(env, variable+"="+l.text(name, *value))
		}
	}
	return Process{Args: mapped, Env: env, Folder: l.folder(name)}, nil
}

// HealthCheck returns the command of a service's health check.
func (l *Loopback) HealthCheck(name string) ([]string, error) {
	check := l.project.Services[name].HealthCheck
	switch {
	case check == nil || check.Disable || len(check.Test) < 2:
		return nil, fmt.Errorf("%s: no health check", name)
	case check.Test[0] == "CMD":
		return l.args(name, check.Test[1:])
	case check.Test[0] == "CMD-SHELL":
		return l.args(name, []string{"sh", "-c", check.Test[1]})
	default:
		return nil, fmt.Errorf("%s: health check %q", name, check.Test)
	}
}

// entrypoint is that of the Dockerfile.
func (l *Loopback) entrypoint() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(l.project.WorkingDir, "Dockerfile"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if list, ok := strings.CutPrefix(line, "ENTRYPOINT "); ok {
			var entrypoint []string
			return entrypoint, json.Unmarshal([]byte(list), &entrypoint)
		}
	}
	return nil, errors.New("no ENTRYPOINT in Dockerfile")
}

// args maps a command of a container. The program is the one of this machine with that name.
func (l *Loopback) args(name string, command []string) ([]string, error) {
	if len(command) == 0 {
		return nil, fmt.Errorf("%s: its image's own command can't be known here", name)
	}
	mapped := make([]string, len(command))
	for i, arg := range command {
		mapped[i] = l.text(name, arg)
	}
	if command[0] == "/carryover" {
		mapped[0] = l.binary
		return mapped, nil
	}
	program := filepath.Base(command[0])
	path, err := exec.LookPath(program)
	if err != nil {
		path, err = exec.LookPath(filepath.Join("/usr/sbin", program)) // Debian's nginx, for users other than root
	}
	mapped[0] = path
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return mapped, nil
}

// text puts addresses of loopback in place of names, and folders of this machine in place of mounts.
func (l *Loopback) text(name, text string) string {
	for _, target := range l.targets(name) {
		text = regexp.MustCompile(`(^|[\s="'])`+regexp.QuoteMeta(target)).ReplaceAllString(text, "${1}"+l.folder(name)+target)
	}
	text = strings.NewReplacer("0.0.0.0", l.addresses[name], "127.0.0.1", l.addresses[name]).Replace(text)
	return l.names.ReplaceAllStringFunc(text, func(found string) string {
		parts := l.names.FindStringSubmatch(found)
		return parts[1] + parts[4] + l.addresses[parts[2]+parts[5]] + parts[3] + parts[6]
	})
}
