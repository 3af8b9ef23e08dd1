// Package wire reads HTTP/1.1 messages and the members of JSON objects as bytes, only as far as the benchmark tool needs. The engines and the
// load generator must cost next to nothing beside the measured program.
package wire
