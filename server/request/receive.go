package request

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"carryover/server/record"
)

// A client must send its body at 1 KiB/s or faster, measured over ten seconds. A slower one would hold memory for nothing.
const (
	slowWindow = 10 * time.Second
	slowBytes  = 10 << 10
)

// maxEarlyBody is the largest body that is read before its request has a slot. net/http notices that a client has left only after the body has
// been read. A larger body would take more memory during the wait than the early notice is worth; that its client has left shows after the wait.
const maxEarlyBody = 64 << 10

// Receive reads the body of a request. admit takes a slot for it, and may wait. After an error, admit may have been called or not.
func (i *Reader) Receive(w http.ResponseWriter, r *http.Request, share *Reservation, admit func() error) (body []byte, err error) {
	early := r.ContentLength >= 0 && r.ContentLength <= maxEarlyBody
	if !early {
		if err := admit(); err != nil {
			return nil, err
		}
	}
	if err := i.CheckFraming(r); err != nil {
		return nil, err
	}
	if body, err = i.readPaced(w, r, share); err == nil && early {
		err = admit()
	}
	if coding := codingOf(r.Header); err == nil && coding != "" {
		return i.decode(coding, body, share)
	}
	return body, err
}

// CheckFraming refuses a body that can't be read by its headers: another media type, an unknown encoding, or too many bytes.
func (i *Reader) CheckFraming(r *http.Request) error {
	if !isJSON(r.Header.Get("Content-Type")) {
		return refused(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type must be application/json.")
	}
	switch codingOf(r.Header) {
	case "", zstdCoding, gzipCoding, deflateCoding:
	default:
		return refused(http.StatusUnsupportedMediaType, "unsupported_encoding", "Content-Encoding must be one of "+Codings+".")
	}
	if r.ContentLength > i.cfg.MaxBodyBytes {
		return TooLarge(i.cfg.MaxBodyBytes)
	}
	return nil
}

// isJSON reports whether a Content-Type names JSON. Nearly all clients use one of two spellings, which are compared without parsing.
func isJSON(contentType string) bool {
	if contentType == "application/json" || contentType == "application/json; charset=utf-8" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}

func (i *Reader) readPaced(w http.ResponseWriter, r *http.Request, share *Reservation) ([]byte, error) {
	limit := i.cfg.MaxBodyBytes
	body := bodyBuffer{size: r.ContentLength, share: share}
	if r.ContentLength < 0 {
		body.size = limit + 1
	}
	control := http.NewResponseController(w)
	share.Begin(func() { _ = control.SetReadDeadline(time.Unix(1, 0)) }) // a time in the past ends the read
	defer share.End()
	deadline := time.Now().Add(i.cfg.ClientBodyTimeout)
	for {
		window := time.Now().Add(slowWindow)
		if window.After(deadline) {
			window = deadline
		}
		if err := control.SetReadDeadline(window); err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
		if err := share.Moved(); err != nil { // later than the deadline is set, which would else undo a stop
			return nil, err
		}
		err := body.readFrom(r.Body, slowBytes)
		switch {
		case int64(len(body.bytes)) > limit:
			return nil, TooLarge(limit)
		case errors.Is(err, io.EOF):
			return body.bytes, control.SetReadDeadline(time.Time{})
		case err != nil:
			if err := share.Moved(); err != nil {
				return nil, err
			}
			return nil, readFailed(r.Context(), err)
		}
	}
}

func readFailed(ctx context.Context, err error) error {
	var wrong *Error
	switch {
	case errors.As(err, &wrong):
		return wrong
	case errors.Is(err, os.ErrDeadlineExceeded):
		return refused(http.StatusRequestTimeout, "request_timeout", "The request body arrived too slowly.")
	case ctx.Err() != nil, errors.Is(err, io.ErrUnexpectedEOF):
		return record.ErrClientGone
	}
	return badRequest("", "bad_request", "The request body can't be read.")
}

const zstdCoding, gzipCoding, deflateCoding = "zstd", "gzip", "deflate"

// Codings are the encodings of a body, as Accept-Encoding lists them.
const Codings = zstdCoding + ", " + gzipCoding + ", " + deflateCoding

// maxRatio bounds the growth of a body that is decoded; up to maxEarlyBody it may always grow. JSON grows five to ten times.
const maxRatio = 100

// maxWindow is the largest window of zstd in HTTP (RFC 9659). Its decoder allocates the window at once.
const maxWindow = 8 << 20

func codingOf(header http.Header) string {
	switch coding := strings.ToLower(strings.Join(header["Content-Encoding"], ", ")); coding {
	case "identity":
		return ""
	case "x-gzip": // RFC 9110, section 8.4.1.3
		return gzipCoding
	default:
		return coding
	}
}

// decode decodes a body. The client's reservation counts both forms and the decoder's window, and at the end the result alone.
func (i *Reader) decode(coding string, raw []byte, share *Reservation) ([]byte, error) {
	limit := min(i.cfg.MaxBodyBytes, max(maxRatio*int64(len(raw)), maxEarlyBody))
	var decoder io.Reader
	var err error
	switch coding {
	case zstdCoding:
		var head zstd.Header
		_ = head.Decode(raw) // the decoder refuses wrong frames
		window := head.WindowSize
		if head.SingleSegment {
			window = head.FrameContentSize
		}
		window = min(max(window, zstd.MinWindowSize), maxWindow)
		if err := share.Grow(int64(window)); err != nil {
			return nil, err
		}
		// One block at a time needs no goroutines, so nothing has to be closed.
		decoder, err = zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window))
	case gzipCoding:
		decoder, err = gzip.NewReader(bytes.NewReader(raw))
	case deflateCoding:
		decoder, err = zlib.NewReader(bytes.NewReader(raw))
	}
	plain := bodyBuffer{size: limit + 1, share: share, besides: share.reserved}
	for err == nil {
		err = plain.readFrom(decoder, firstStep)
	}
	var full *Error
	switch {
	case int64(len(plain.bytes)) > limit, errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, refused(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("The request body decodes to more than %d bytes.", limit))
	case errors.As(err, &full):
		return nil, full
	case !errors.Is(err, io.EOF):
		return nil, badRequest("", "bad_request", "The request body is not what its Content-Encoding says.")
	}
	share.ShrinkTo(int64(cap(plain.bytes)))
	return plain.bytes, nil
}
