package http1

const (
	maxChunkDigits = 15      // hexadecimal: less than 2^60
	maxChunkNote   = 256     // bytes of a chunk extension; no engine sends one
	maxTrailer     = 8 << 10 // bytes of the trailer, the lines behind the last chunk
)

// chunks decodes the chunked transfer coding (RFC 9112, 7.1) from pieces of any size. It ignores extensions and trailers.
type chunks struct {
	state  chunkState
	left   int64 // bytes of the chunk that have not arrived
	digits int   // digits read of the current chunk size
	note   int   // bytes of an extension or of the trailer so far
	blank  bool  // the current line of the trailer is empty so far
}

type chunkState uint8

// A state names the next byte.
const (
	chunkSize   chunkState = iota // a digit, or the end of the size
	chunkNote                     // of the line with the size
	chunkSizeLF                   // the end of that line
	chunkData
	chunkDataCR // the end of the data
	chunkDataLF
	chunkTrailer // a field, or the empty line that ends the body
	chunkTrailerName
	chunkTrailerValue
	chunkTrailerLF
	chunkOver // nothing
)

// decode moves the data of p to the beginning of p and returns its length. rest is the bytes behind the end of the body.
// After an error the data before the error is valid, and decode must not be called again.
func (c *chunks) decode(p []byte) (n int, rest []byte, err error) {
	for i := 0; i < len(p); {
		switch c.state {
		case chunkData:
			m := copy(p[n:], p[i:i+int(min(c.left, int64(len(p)-i)))])
			n, i, c.left = n+m, i+m, c.left-int64(m)
			if c.left == 0 {
				c.state = chunkDataCR
			}
		case chunkOver:
			return n, p[i:], nil
		default:
			if err := c.frame(p[i]); err != nil {
				return n, nil, err
			}
			i++
		}
	}
	return n, nil, nil
}

func (c *chunks) frame(b byte) error {
	switch c.state {
	case chunkSize:
		return c.size(b)
	case chunkNote:
		return c.extension(b)
	case chunkSizeLF:
		if b != '\n' {
			return errChunkSize
		}
		if c.state, c.digits = chunkData, 0; c.left == 0 {
			c.state, c.note = chunkTrailer, 0
		}
	case chunkDataCR:
		if b != '\r' {
			return errChunkEnd
		}
		c.state = chunkDataLF
	case chunkDataLF:
		if b != '\n' {
			return errChunkEnd
		}
		c.state = chunkSize
	default:
		return c.trailer(b)
	}
	return nil
}

func (c *chunks) size(b byte) error {
	digit := int64(0)
	switch {
	case b >= '0' && b <= '9':
		digit = int64(b - '0')
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		digit = int64(b|0x20-'a') + 10
	case c.digits == 0:
		return errChunkSize
	case b == ';':
		c.state, c.note = chunkNote, 0
		return nil
	case b == '\r':
		c.state = chunkSizeLF
		return nil
	default:
		return errChunkSize
	}
	if c.digits++; c.digits > maxChunkDigits {
		return errChunkSize
	}
	c.left = c.left<<4 | digit
	return nil
}

func (c *chunks) extension(b byte) error {
	if b == '\r' {
		c.state = chunkSizeLF
		return nil
	}
	if c.note++; c.note > maxChunkNote || b < ' ' && b != '\t' || b == 0x7f {
		return errChunkNote
	}
	return nil
}

func (c *chunks) trailer(b byte) error {
	if c.note++; c.note > maxTrailer {
		return errTrailer
	}
	switch {
	case c.state == chunkTrailerLF && b == '\n':
		if c.state = chunkTrailer; c.blank {
			c.state = chunkOver
		}
	case c.state == chunkTrailer && b == '\r':
		c.state, c.blank = chunkTrailerLF, true
	case c.state == chunkTrailerValue && b == '\r':
		c.state = chunkTrailerLF
	case c.state == chunkTrailerValue && (b >= ' ' || b == '\t') && b != 0x7f:
	case c.state == chunkTrailerName && b == ':':
		c.state = chunkTrailerValue
	case c.state <= chunkTrailerName && tokenBytes[b]:
		c.state = chunkTrailerName
	default:
		return errTrailer
	}
	return nil
}
