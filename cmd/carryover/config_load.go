package main

import (
	"errors"
	"fmt"
	"maps"
	"strings"
)

// fault is one thing that is wrong with the configuration.
type fault struct {
	key    string // section.key, whatever the source
	value  string // as written, quoted; empty if the key itself is wrong
	origin string // flag, variable, file and line, or "default"
	want   string // the values that would be accepted
}

func (f fault) Error() string {
	value := f.value
	if value != "" {
		value += " "
	}
	return fmt.Sprintf("%s: %s(%s): want %s", f.key, value, f.origin, f.want)
}

// loader merges defaults, file, environment and flags, in this order, and remembers where each value came from. A bad value
// is a fault even if a later source replaces it.
type loader struct {
	cfg     Config
	rows    []setting // pointers into cfg
	origins map[string]string
	faults  []error
}

// loadConfig returns the effective configuration, or a usageError that joins all faults.
func loadConfig(env map[string]string, flags *configFlags) (Config, error) {
	return newLoader().load(env, flags)
}

func (l *loader) load(env map[string]string, flags *configFlags) (Config, error) {
	l.merge(env, flags)
	l.complete()
	l.validate()
	if len(l.faults) > 0 {
		return Config{}, &usageError{errors.Join(l.faults...)}
	}
	return l.cfg, nil
}

func newLoader() *loader {
	l := &loader{cfg: defaultConfig(), origins: map[string]string{}}
	l.rows = settings(&l.cfg)
	return l
}

func (l *loader) merge(env map[string]string, flags *configFlags) {
	path, origin := env[configVariable], configVariable
	if flags.file.given {
		path, origin = flags.file.text, "--"+configFlag
	}
	if path != "" {
		l.applyFile(path, origin)
	}
	l.applyEnv(env)
	l.applyFlags(flags)
}

// set stores one value as text. On a fault it records the fault and keeps the value of the earlier source. Secrets accept every text,
// so these faults never contain a secret.
func (l *loader) set(s setting, text, origin string) {
	if want, ok := parseValue(s, text); !ok {
		l.faults = append(l.faults, fault{key: s.key, value: quoted(text), origin: origin, want: want})
		return
	}
	l.own(s.key, origin)
}

// own records where a value came from. A list replaces the earlier source's list and everything recorded about its items.
func (l *loader) own(key, origin string) {
	maps.DeleteFunc(l.origins, func(k, _ string) bool { return strings.HasPrefix(k, key+"[") })
	l.origins[key] = origin
}

// given reports whether any source set the value, even to its default.
func (l *loader) given(key string) bool {
	_, ok := l.origins[key]
	return ok
}

// fault records that an effective value cannot be used. value is quoted as it stands.
func (l *loader) fault(key, value, want string) {
	l.faults = append(l.faults, fault{key: key, value: quoted(value), origin: l.origin(key), want: want})
}

// origin returns the source of a value. For a field of an instance, "decode[1].url", it falls back to the list, which flags and
// variables set as a whole.
func (l *loader) origin(key string) string {
	list, _, _ := strings.Cut(key, "[")
	for _, k := range []string{key, list} {
		if origin, ok := l.origins[k]; ok {
			return origin
		}
	}
	return "default"
}

// quoted hides the user part of a URL, because it may contain a password.
func quoted(text string) string {
	if i := strings.LastIndexByte(text, '@'); i >= 0 {
		scheme, _, ok := strings.Cut(text[:i], "://")
		hidden := redacted + text[i:]
		if ok {
			hidden = scheme + "://" + hidden
		}
		text = hidden
	}
	return fmt.Sprintf("%q", text)
}
