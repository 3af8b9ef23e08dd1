// Package rawjson reads, cuts and rewrites JSON texts (RFC 8259) without decoding them. Only what is asked for is decoded:
// a float64 round trip would turn 9007199254740993 into ...992 and re-escape every "<". It knows bytes and nothing else.
//
// It promises:
//   - One depth. Nothing is read that is nested deeper than MaxDepth, so that no foreign text can fill a stack; what is only
//     passed over (Scanner.Pass) may be deeper, in constant memory. (scanner.go)
//   - One grammar. What is accepted is what encoding/json accepts up to that depth; invalid UTF-8 inside of strings too,
//     except in Objects. (scanner.go, number.go, text.go)
//   - Objects are read strictly. What two parsers could read as two values is refused: equal names, names without a UTF-8
//     form, invalid UTF-8. (object.go)
//   - Bytes that no edit or cut concerns stay as they are, in their order, white space included. (edits.go, pieces.go, cut.go)
//   - A text is read in one pass, and no pass allocates by itself but ParseObject (its members) and ParseIDs (the list).
//
// Errors are *Error, which repeats nothing of the text but a top-level name: what is read are prompts.
//
// Its callers are server, convcache, upstream and sse. The simulator of engines must not share its mistakes and does not
// import it.
package rawjson
