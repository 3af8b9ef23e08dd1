package kvready

// MessageOf is what is published of a frame that nobody waits for.
func MessageOf(frame []byte) string { return read(frame).message() }

// MaxWaits is how many arrivals may be open.
const MaxWaits = maxWaits
