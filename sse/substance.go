package sse

import (
	"errors"
	"slices"

	"carryover/sse/rawjson"
)

// hasSubstance reports whether an object has, apart from the member cut, at least one of the named members with a value that
// is not null, [] or {}. Scanner.Pass must have accepted the object before.
func hasSubstance(object []byte, names []string, cut string) bool {
	s := rawjson.Scanner{Data: object}
	s.Space()
	return errors.Is(s.Members(func(m rawjson.Member) error {
		if err := s.Pass(); err != nil {
			return err
		}
		value := object[m.Value:s.Pos]
		if slices.ContainsFunc(names, func(name string) bool { return name != cut && m.Named(name) }) && !rawjson.IsEmpty(value) {
			return errSubstance
		}
		return nil
	}), errSubstance)
}

// errSubstance ends the walk over the members once one has substance.
var errSubstance = errors.New("member with substance")
