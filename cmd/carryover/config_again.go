package main

import (
	"errors"
	"strings"
)

// loadAgain reads the configuration again while the program serves. It refuses the whole configuration if it says less than the one at the
// program's start: if the file is empty, as while it is being written, or if a role has lost its instances. The default instances would
// then get that role's turns.
func loadAgain(started *loader, env map[string]string, flags *configFlags) (Config, error) {
	l := newLoader()
	cfg, err := l.load(env, flags)
	if err != nil {
		return Config{}, err
	}
	var faults []error
	if file := filePath(env, flags); file != "" && started.saidBy(file) && !l.saidBy(file) {
		faults = append(faults, fault{key: configFlag, value: quoted(file), origin: "reload", want: "a file that sets something, as it did at the start"})
	}
	for _, role := range []string{rolePrefill, roleDecode} {
		if l.byDefault(role) && !started.byDefault(role) {
			faults = append(faults, fault{key: role, origin: "reload", want: "instances, or where they are found: there were some at the start"})
		}
	}
	if len(faults) > 0 {
		return Config{}, &usageError{errors.Join(faults...)}
	}
	return cfg, nil
}

// byDefault reports whether the instances of a role are the default ones.
func (l *loader) byDefault(role string) bool { return !l.given(role) && !l.cfg.finds(role) }

// saidBy reports whether a file has set anything.
func (l *loader) saidBy(file string) bool {
	for _, origin := range l.origins {
		if strings.HasPrefix(origin, file+":") {
			return true
		}
	}
	return false
}

// filePath returns the path of the configuration file, "" for none.
func filePath(env map[string]string, flags *configFlags) string {
	if flags.file.given {
		return flags.file.text
	}
	return env[configVariable]
}
