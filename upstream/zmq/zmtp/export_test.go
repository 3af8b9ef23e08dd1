package zmtp

import "net"

// ReadAll introduces itself to the other side of a connection and returns what it sends until that ends, and why it ended.
func ReadAll(conn net.Conn, kind Kind, limits Limits) ([]Message, error) {
	p, err := introduce(conn, kind, limits.withDefaults())
	if err != nil {
		return nil, err
	}
	var all []Message
	for {
		m, err := p.receive()
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}
