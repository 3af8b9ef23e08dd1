package compose

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/types"
)

// folder stands for the root of a service's container.
func (l *Loopback) folder(name string) string { return filepath.Join(l.root, name) }

// targets are the paths in a service's container where something is mounted, the longest first.
func (l *Loopback) targets(name string) []string {
	service := l.project.Services[name]
	var targets []string
	for _, volume := range service.Volumes {
		targets = append(targets, volume.Target)
	}
	for _, secret := range service.Secrets {
		targets = append(targets, secret.Target)
	}
	for _, option := range service.Tmpfs {
		path, _, _ := strings.Cut(option, ":")
		targets = append(targets, path)
	}
	slices.SortFunc(targets, longestFirst)
	return targets
}

// place writes what is mounted in a service's container below its folder.
func (l *Loopback) place(name string) error {
	service := l.project.Services[name]
	if err := os.MkdirAll(l.folder(name), 0o755); err != nil {
		return err
	}
	for _, volume := range service.Volumes {
		var err error
		switch volume.Type {
		case types.VolumeTypeBind:
			err = l.copy(name, volume.Source, volume.Target)
		default:
			err = os.MkdirAll(l.folder(name)+volume.Target, 0o755)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, secret := range service.Secrets {
		if err := l.copy(name, l.project.Secrets[secret.Source].File, secret.Target); err != nil {
			return fmt.Errorf("%s: secret %s: %w", name, secret.Source, err)
		}
	}
	for _, option := range service.Tmpfs {
		path, _, _ := strings.Cut(option, ":")
		if err := os.MkdirAll(l.folder(name)+path, 0o755); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// listens is nginx's directive to listen at a port of all addresses, which are those of its container.
var listens = regexp.MustCompile(`(?m)^(\s*listen\s+)(\d+;)`)

// copy writes a file as the service finds it, with addresses of loopback for names.
func (l *Loopback) copy(name, source, target string) error {
	text, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	path := l.folder(name) + target
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	mapped := listens.ReplaceAllString(l.text(name, string(text)), "${1}"+l.addresses[name]+":${2}")
	return os.WriteFile(path, []byte(mapped), 0o644)
}
