// Package rawjson reads, cuts and rewrites JSON texts (RFC 8259) and decodes only what the caller asks for. Decoding everything would
// change it: a float64 round trip turns 9007199254740993 into ...992 and re-escapes every "<". The package knows bytes and nothing else.
//
// It promises:
//   - One depth. It reads nothing that is nested deeper than MaxDepth, so that no foreign text can fill a stack. What
//     Scanner.Pass skips may be deeper, in constant memory. (scanner.go)
//   - One grammar. It accepts what encoding/json accepts up to that depth, including invalid UTF-8 inside of strings;
//     Objects refuse invalid UTF-8, and so do their Lists. (scanner.go, number.go, text.go)
//   - Objects are read strictly. An Object must have one meaning for all parsers, so equal names, names without a UTF-8
//     form and invalid UTF-8 are refused. (object.go)
//   - A member read by its path is the last of its name, as in the engines. (get.go)
//   - Bytes outside of an edit or cut stay as they are, in their order, white space included. (edits.go, pieces.go, cut.go)
//   - A text is read in one pass, and a pass allocates nothing, except ParseObject (its members), Scanner.List (its index) and
//     ParseIDs (the list).
//
// Errors are *Error. They repeat nothing of the text but a top-level name, because the texts contain prompts.
//
// Its callers are server, convcache, upstream and sse. The simulator of engines does not import it, because it must not
// share its mistakes.
package rawjson
