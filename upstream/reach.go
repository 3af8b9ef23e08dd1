package upstream

import "context"

// Reach opens a connection to an instance and closes it, within DialTimeout. The error says why that failed. It sends
// nothing, and does not change what is known of the engine's health.
func (c *Client) Reach(ctx context.Context, instance *Instance) error {
	conn, err := c.open.dial(ctx, instance.Authority(), c.dialTimeout)
	if err != nil {
		return err
	}
	_ = conn.Close()
	return nil
}
