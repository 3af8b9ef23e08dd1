package kubernetes

import (
	"errors"
	"io"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"carryover/upstream"
)

func TestEvents(t *testing.T) {
	const empty = `{"type":"ADDED","object":""}`
	large := strings.Replace(empty, `""`, `"`+strings.Repeat("x", maxEvent-len(empty))+`"`, 1)
	for name, row := range map[string]struct {
		text  string
		kinds string
		err   error
	}{
		"nothing":              {"", "", io.EOF},
		"two lines":            {`{"type":"ADDED","object":{}}` + "\n" + `{"type":"DELETED","object":{}}` + "\n", "ADDED DELETED", io.EOF},
		"nothing between":      {`{"type":"ADDED"}{"type":"MODIFIED"}`, "ADDED MODIFIED", io.EOF},
		"cut":                  {`{"type":"ADDED"}` + "\n" + `{"type":"DEL`, "ADDED", io.ErrUnexpectedEOF},
		"no JSON":              {`{"type":"ADDED"}` + "\n<html>", "ADDED", errUnreadable},
		"another kind of JSON": {`["ADDED"]`, "", errUnreadable},
		"the largest":          {large + large, "ADDED ADDED", io.EOF},
		"a byte too large":     {large + strings.Replace(large, "x", "xx", 1), "ADDED", errUnreadable},
	} {
		for reading, source := range map[string]io.Reader{"at once": strings.NewReader(row.text), "in halves": iotest.HalfReader(strings.NewReader(row.text))} {
			stream := newEvents(source)
			var kinds []string
			var err error
			for {
				var e event
				if e, err = stream.next(); err != nil {
					break
				}
				kinds = append(kinds, e.Type)
			}
			if got := strings.Join(kinds, " "); got != row.kinds || !errors.Is(err, row.err) {
				t.Errorf("%s, read %s: got %q and %v, want %q and %v", name, reading, got, err, row.kinds, row.err)
			}
		}
	}
}

func TestEvent_Refusal(t *testing.T) {
	for name, row := range map[string]struct {
		object string
		gone   bool
	}{
		"expired":   {`{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version: 1 (2)"}`, true},
		"other":     {`{"kind":"Status","code":500,"reason":"InternalError"}`, false},
		"no object": {`null`, false},
		"no status": {`"410"`, false},
	} {
		r := event{Type: failed, Object: []byte(row.object)}.refusal()
		if forgotten(r) != row.gone || resumable(r) {
			t.Errorf("%s: forgotten %v, resumable %v, want %v, false", name, forgotten(r), resumable(r), row.gone)
		}
	}
}

// FuzzEvents reads a watch to its end and checks what it makes of it.
func FuzzEvents(f *testing.F) {
	roles := roles{prefill: []string{"prefill"}, decode: []string{"decode"}}
	f.Fuzz(func(t *testing.T, text string) {
		var last []upstream.Instance
		watch := follower{reader: reader{port: "http", roles: roles}, roster: &roster{
			set: func(all []upstream.Instance) { last = all }, logger: discardLogger(), objects: map[string]object{},
		}}
		stream := newEvents(strings.NewReader(text))
		for {
			e, err := stream.next()
			if err != nil {
				break
			}
			if err := watch.apply(e); err != nil && !errors.Is(err, errUnreadable) && resumable(err) {
				t.Errorf("%v can be gone on from", err)
			}
		}
		for i, instance := range last {
			if u, err := url.Parse(instance.BaseURL); err != nil || u.Path != "" || u.Port() == "" || instance.Name == "" {
				t.Errorf("%+v is no instance (%v)", instance, err)
			}
			same := func(other upstream.Instance) bool { return other.Role == instance.Role && other.Name == instance.Name }
			if slices.IndexFunc(last, same) != i {
				t.Errorf("%+v is there twice", instance)
			}
		}
	})
}
