package rawjsontest

import "carryover/sse/rawjson"

// Cut removes what rawjson.FindMember finds.
func Cut(object []byte, member string) (rest, value []byte, found bool) {
	value, cuts := rawjson.FindMember(object, member, nil)
	kept := 0
	for _, c := range cuts {
		rest = append(rest, object[kept:c.From]...)
		kept = c.To
	}
	return append(rest, object[kept:]...), value, len(cuts) > 0
}
