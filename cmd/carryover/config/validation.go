package config

import (
	"maps"
	"strings"
)

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
	_, ok := v.origins[key]
	return ok
}

// fault records that an effective value cannot be used. value is quoted as it stands.
func (v *validation) fault(key, value, want string) {
	v.faults = append(v.faults, Fault{Key: key, Value: Quoted(value), Origin: v.origin(key), Want: want})
}

// origin returns the source of a value. For a field of an instance, "decode[1].url", it falls back to the list, which flags and
// variables set as a whole.
func (v *validation) origin(key string) string {
	list, _, _ := strings.Cut(key, "[")
	for _, k := range []string{key, list} {
		if origin, ok := v.origins[k]; ok {
			return origin
		}
	}
	return "default"
}
