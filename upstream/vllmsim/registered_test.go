package vllmsim

import "testing"

// The number makes the reader shake hands again. Without it, it reads by the registration that it knows.
func TestSleepAndWake_ReadersNeedTheNumber(t *testing.T) {
	for name, keep := range map[string]bool{"kept": true, "dropped": false} {
		t.Run(name, func(t *testing.T) {
			p, d := startPair(t, nil)
			messages := []any{user(longText)}
			for n := range 3 {
				_, reply := turn(t, p, d, messages, nil, object{"cache_salt": string(rune('a' + n))})
				ticket := reply.params()
				if !keep {
					delete(ticket, "remote_registration_generation")
				}
				next := append(messages, assistant(reply.text()), user(longText))
				turn(t, p, d, next, ticket, object{"cache_salt": string(rune('n' + n))})
				if n == 0 {
					d.SleepAndWake()
				}
			}
			corrupt := 2
			if keep {
				corrupt = 0
			}
			expect(t, p, counts{"CorruptReads": corrupt, "Loads": 3})
			expect(t, d, counts{"StaleReads": corrupt})
		})
	}
}
