package config

import (
	"errors"
	"strings"

	"carryover/cmd/carryover/command"
)

// LoadAgain reads the configuration again while the program serves. It refuses the whole configuration if it says less than the one at the
// program's start: if the file is empty, as while it is being written, or if a role has lost its instances. The default instances would
// then get that role's turns.
func LoadAgain(started *Loader, env map[string]string, flags *Flags) (Config, error) {
	l := NewLoader()
	cfg, err := l.Load(env, flags)
	if err != nil {
		return Config{}, err
	}
	var faults []error
	if file := filePath(env, flags); file != "" && started.saidBy(file) && !l.saidBy(file) {
		faults = append(faults, Fault{Key: FileFlag, Value: Quoted(file), Origin: "reload", Want: "a file that sets something, as it did at the start"})
	}
	for _, role := range []string{RolePrefill, RoleDecode} {
		if l.byDefault(role) && !started.byDefault(role) {
			faults = append(faults, Fault{Key: role, Origin: "reload", Want: "instances, or where they are found: there were some at the start"})
		}
	}
	if len(faults) > 0 {
		return Config{}, &command.UsageError{Err: errors.Join(faults...)}
	}
	return cfg, nil
}

// byDefault reports whether the instances of a role are the default ones.
func (l *Loader) byDefault(role string) bool { return !l.given(role) && !l.cfg.Finds(role) }

// saidBy reports whether a file has set anything.
func (l *Loader) saidBy(file string) bool {
	for _, origin := range l.origins {
		if strings.HasPrefix(origin, file+":") {
			return true
		}
	}
	return false
}

// filePath returns the path of the configuration file, "" for none.
func filePath(env map[string]string, flags *Flags) string {
	if flags.file.given {
		return flags.file.text
	}
	return env[configVariable]
}
