package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"carryover/cmd/carryover/command"
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

// NewLoader returns a loader of the defaults.
func NewLoader() *Loader {
	l := &Loader{validation: validation{origins: map[string]string{}}, cfg: Default()}
	l.rows = Settings(&l.cfg)
	return l
}

// Load reads the sources and checks what they come to. Its error is a UsageError that joins all faults.
func (l *Loader) Load(env map[string]string, flags *Flags) (Config, error) {
	if path := filePath(env, flags); path != "" {
		origin := configVariable
		if flags.file.given {
			origin = "--" + FileFlag
		}
		l.applyFile(path, origin)
	}
	l.applyEnv(env)
	l.applyFlags(flags)
	complete(&l.validation, &l.cfg)
	validate(&l.validation, &l.cfg, l.rows)
	if len(l.faults) > 0 {
		return Config{}, &command.UsageError{Err: errors.Join(l.faults...)}
	}
	return l.cfg, nil
}

// filePath returns the path of the configuration file, "" for none.
func filePath(env map[string]string, flags *Flags) string {
	if flags.file.given {
		return flags.file.text
	}
	return env[configVariable]
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
func Quoted(text string) string { return strconv.Quote(RedisURL(text).String()) }

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

// validation records what is wrong with values, and where each value came from.
type validation struct {
	origins map[string]string
	faults  []error
}

// own records where a value came from. A list replaces the earlier source's list and everything recorded about its items.
func (v *validation) own(key, origin string) {
	maps.DeleteFunc(v.origins, func(k, _ string) bool { return strings.HasPrefix(k, key+"[") })
	v.origins[key] = origin
}

// given reports whether any source set the value, even to its default.
func (v *validation) given(key string) bool {
	return v.origins[key] != ""
}

// fault records that an effective value cannot be used. value is quoted as it stands.
func (v *validation) fault(key, value, want string) {
	v.faults = append(v.faults, Fault{Key: key, Value: Quoted(value), Origin: v.origin(key), Want: want})
}

// origin returns the source of a value. For a field of an instance, "decode[1].url", it falls back to the list, which flags and
// variables set as a whole.
func (v *validation) origin(key string) string {
	list, _, _ := strings.Cut(key, "[")
	return cmp.Or(v.origins[key], v.origins[list], "default")
}
