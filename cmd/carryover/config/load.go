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

// Fault is one error in the configuration.
type Fault struct {
	Key    string // section.key for every source
	Value  string // as written, quoted; empty if the key itself is wrong
	Origin string // flag, variable, file and line, or "default"
	Want   string // the accepted values
}

func (f Fault) Error() string {
	value := f.Value
	if value != "" {
		value += " "
	}
	return fmt.Sprintf("%s: %s(%s): want %s", f.Key, value, f.Origin, f.Want)
}

// Loader merges defaults, file, environment and flags, in this order, and remembers each value's source. A bad value is a fault even if a
// later source replaces it.
type Loader struct {
	validation
	cfg  Config
	rows []Setting // pointers into cfg
}

// NewLoader returns a loader with the defaults.
func NewLoader() *Loader {
	l := &Loader{validation: validation{origins: map[string]string{}}, cfg: Default()}
	l.rows = Settings(&l.cfg)
	return l
}

// Load reads and checks all sources. Its error is a UsageError that joins all faults.
func (l *Loader) Load(env map[string]string, flags *Flags) (Config, error) {
	if path, origin := filePath(env, flags); path != "" {
		l.applyFile(path, origin)
	}
	l.applyEnv(env)
	l.applyFlags(flags)
	completeInstances(&l.validation, &l.cfg)
	completeSecret(&l.validation, "conversation.secret", &l.cfg.Conversation.Secret, l.cfg.Conversation.SecretFile)
	completeSecret(&l.validation, "admin.token", &l.cfg.Admin.Token, l.cfg.Admin.TokenFile)
	validate(&l.validation, &l.cfg, l.rows)
	if len(l.faults) > 0 {
		return Config{}, &command.UsageError{Err: errors.Join(l.faults...)}
	}
	return l.cfg, nil
}

func filePath(env map[string]string, flags *Flags) (path, origin string) {
	if flags.file.given {
		return flags.file.text, "--" + FileFlag
	}
	return env[configVariable], configVariable
}

// set parses one value. A fault leaves the value of the earlier source. Secrets accept every text, so no fault here shows a secret.
func (l *Loader) set(s Setting, text, origin string) {
	if want := parseValue(s, text); want != "" {
		l.faults = append(l.faults, Fault{Key: s.Key, Value: Quoted(text), Origin: origin, Want: want})
		return
	}
	l.own(s.Key, origin)
}

// Quoted hides the user part of a URL, which may contain a password.
func Quoted(text string) string { return strconv.Quote(RedisURL(text).String()) }

// LoadAgain reads the configuration for a reload. It refuses a file that has become empty, because it may be half-written. It
// refuses a role that has lost its instances, because the default instances would get that role's turns.
func LoadAgain(started *Loader, env map[string]string, flags *Flags) (Config, error) {
	l := NewLoader()
	cfg, err := l.Load(env, flags)
	if err != nil {
		return Config{}, err
	}
	var faults []error
	if file, _ := filePath(env, flags); file != "" && started.saidBy(file) && !l.saidBy(file) {
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

func (l *Loader) byDefault(role string) bool { return !l.given(role) && !l.cfg.Finds(role) }

func (l *Loader) saidBy(file string) bool {
	for _, origin := range l.origins {
		if strings.HasPrefix(origin, file+":") {
			return true
		}
	}
	return false
}

// validation collects faults, and the source of each value.
type validation struct {
	origins map[string]string
	faults  []error
}

// own records a value's source. A list also replaces everything recorded about the items of an earlier list.
func (v *validation) own(key, origin string) {
	maps.DeleteFunc(v.origins, func(k, _ string) bool { return strings.HasPrefix(k, key+"[") })
	v.origins[key] = origin
}

// given reports whether any source set the value, even to its default.
func (v *validation) given(key string) bool {
	return v.origins[key] != ""
}

func (v *validation) fault(key, value, want string) {
	v.faults = append(v.faults, Fault{Key: key, Value: Quoted(value), Origin: v.origin(key), Want: want})
}

// origin falls back from a field of an instance, "decode[1].url", to its list, which flags and variables set as a whole.
func (v *validation) origin(key string) string {
	list, _, _ := strings.Cut(key, "[")
	return cmp.Or(v.origins[key], v.origins[list], "default")
}
