// Package wire reads HTTP/1.1 messages and the members of JSON objects, as bytes and with what the benchmark tool needs of either and no
// more: its engines and its load generator must cost next to nothing beside the program that is measured.
package wire
