package sse

import (
	"errors"
	"slices"

	"carryover/sse/rawjson"
)

// hasSubstance reports whether an object, without the member that is cut from it, has at least one of the named members
// with a value that is not null, [] or {}. The object has been passed over.
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

// errSubstance ends the walk that has found some.
var errSubstance = errors.New("member with substance")
