package config

import (
	"errors"
	"fmt"
	"strconv"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config/redisurl"
)

// Fault is one thing that is wrong with the configuration.
type Fault struct {
	Key    string // section.key, whatever the source
	Value  string // as written, quoted; empty if the key itself is wrong
	Origin string // flag, variable, file and line, or "default"
	Want   string // the values that would be accepted
}

func (f Fault) Error() string {
	value := f.Value
	if value != "" {
		value += " "
	}
	return fmt.Sprintf("%s: %s(%s): want %s", f.Key, value, f.Origin, f.Want)
}

// Loader merges defaults, file, environment and flags, in this order, and remembers where each value came from. A bad value
// is a fault even if a later source replaces it.
type Loader struct {
	validation
	cfg  Config
	rows []Setting // pointers into cfg
}

// Load returns the effective configuration, or a UsageError that joins all faults.
func Load(env map[string]string, flags *Flags) (Config, error) {
	return NewLoader().Load(env, flags)
}

// Load reads the sources and checks what they come to. Its error is a UsageError that joins all faults.
func (l *Loader) Load(env map[string]string, flags *Flags) (Config, error) {
	l.merge(env, flags)
	complete(&l.validation, &l.cfg)
	validate(&l.validation, &l.cfg, l.rows)
	if len(l.faults) > 0 {
		return Config{}, &command.UsageError{Err: errors.Join(l.faults...)}
	}
	return l.cfg, nil
}

// NewLoader returns a loader of the defaults.
func NewLoader() *Loader {
	l := &Loader{validation: validation{origins: map[string]string{}}, cfg: Default()}
	l.rows = Settings(&l.cfg)
	return l
}

func (l *Loader) merge(env map[string]string, flags *Flags) {
	path, origin := env[configVariable], configVariable
	if flags.file.given {
		path, origin = flags.file.text, "--"+FileFlag
	}
	if path != "" {
		l.applyFile(path, origin)
	}
	l.applyEnv(env)
	l.applyFlags(flags)
}

// set stores one value as text. On a fault it records the fault and keeps the value of the earlier source. Secrets accept every text,
// so these faults never contain a secret.
func (l *Loader) set(s Setting, text, origin string) {
	if want := parseValue(s, text); want != "" {
		l.faults = append(l.faults, Fault{Key: s.Key, Value: Quoted(text), Origin: origin, Want: want})
		return
	}
	l.own(s.Key, origin)
}

// Quoted hides the user part of a URL, because it may contain a password.
func Quoted(text string) string { return strconv.Quote(redisurl.URL(text).String()) }
