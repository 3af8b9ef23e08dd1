package upstream

import "context"

// Reach opens a connection to an instance and closes it, within the client's time limit for connections. The error says why the
// instance takes none. Nothing is sent, and nothing is learnt of the engine's health.
func (c *Client) Reach(ctx context.Context, instance *Instance) error {
	conn, err := c.dial(ctx, "tcp", instance.Authority())
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}
