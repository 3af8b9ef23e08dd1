package http1

// ProtocolError is an answer that is not HTTP, or whose framing is ambiguous. The text is a constant of this package and quotes nothing
// of the answer.
type ProtocolError string

// Error implements error.
func (e ProtocolError) Error() string { return "the answer breaks HTTP: " + string(e) }

// The faults of an answer.
const (
	errLineEnd      ProtocolError = "a line that does not end with CRLF"
	errStatusLine   ProtocolError = "the status line"
	errFieldName    ProtocolError = "the name of a header field"
	errFieldValue   ProtocolError = "the value of a header field"
	errFold         ProtocolError = "a header field in several lines"
	errHeadTooLarge ProtocolError = "a header of more than 64 KiB"
	errInterim      ProtocolError = "too many interim answers"
	errUpgrade      ProtocolError = "another protocol that was not asked for"
	errLength       ProtocolError = "the length"
	errLengths      ProtocolError = "different lengths"
	errBothFramings ProtocolError = "a length and a transfer coding"
	errCoding       ProtocolError = "a transfer coding other than chunked"
	errChunkSize    ProtocolError = "the size of a chunk"
	errChunkEnd     ProtocolError = "the end of a chunk"
	errChunkNote    ProtocolError = "the extension of a chunk"
	errTrailer      ProtocolError = "the trailer"
)

// RequestError is a request that is not sent because it would not be well-formed HTTP.
type RequestError string

// Error implements error.
func (e RequestError) Error() string { return "the request breaks HTTP: " + string(e) }

// The faults of a request.
const (
	errMethod    RequestError = "a method other than GET and POST"
	errAuthority RequestError = "the authority"
	errScheme    RequestError = "a scheme other than http and https"
	errPath      RequestError = "the path"
	errName      RequestError = "the name of a header field"
	errReserved  RequestError = "a header field that frames the request"
	errValue     RequestError = "the value of a header field"
)
