package request

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/zstd"
)

const zstdCoding, gzipCoding, deflateCoding = "zstd", "gzip", "deflate"

// Codings are the encodings in which a body may come, as Accept-Encoding lists them.
const Codings = zstdCoding + ", " + gzipCoding + ", " + deflateCoding

// maxRatio is how many times as large as it came a body may get; one of maxEarlyBody or less always may. JSON gets five to ten times as large.
const maxRatio = 100

// maxWindow is the largest window of zstd in HTTP (RFC 9659). Its decoder allocates the window at once.
const maxWindow = 8 << 20

// codingOf returns the encoding of a body, "" for none.
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

// decode returns what a body decodes to. The client's reservation counts both of them and the decoder's window, and at the end the result alone.
func (i *Reader) decode(coding string, raw []byte, share *Reservation) ([]byte, error) {
	limit := min(i.cfg.MaxBodyBytes, max(maxRatio*int64(len(raw)), maxEarlyBody))
	var decoder io.Reader
	var err error
	switch coding {
	case zstdCoding:
		var head zstd.Header
		_ = head.Decode(raw) // the decoder refuses what is no frame
		window := head.WindowSize
		if head.SingleSegment {
			window = head.FrameContentSize
		}
		window = min(max(window, zstd.MinWindowSize), maxWindow)
		if err := share.Grow(int64(window)); err != nil {
			return nil, err
		}
		// One block at a time needs no goroutines, so that nothing has to be closed.
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
