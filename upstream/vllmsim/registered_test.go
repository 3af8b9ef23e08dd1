package vllmsim

import "testing"

// wokenPair runs a pair and a turn whose params it returns, and has d sleep and wake.
func wokenPair(t *testing.T, version string) (p, d *Instance, messages []any, ticket object) {
	t.Helper()
	p, d = startPair(t, func(c *Config) { c.Version = version })
	messages = []any{user(longText)}
	_, reply := turn(t, p, d, messages, nil, nil)
	d.SleepAndWake()
	return p, d, append(messages, assistant(reply.text()), user("And then? "+longText)), reply.params()
}

func TestSleepAndWake_RaisesTheGeneration(t *testing.T) {
	for version, want := range map[string][2]any{VLLM033: {1.0, 2.0}, VLLM032: {nil, nil}} {
		p, d, messages, before := wokenPair(t, version)
		_, reply := turn(t, p, d, messages, nil, object{"cache_salt": "s"})
		after := reply.params()
		if got := [2]any{before["remote_registration_generation"], after["remote_registration_generation"]}; got != want {
			t.Errorf("%s: generations %v, want %v", version, got, want)
		}
		expect(t, d, counts{"Pins": 1})
		assertClean(t, p, d)
	}
}

// A ticket from before the sleep is read wrongly, whatever its number says.
func TestSleepAndWake_OlderTicketsAreGarbage(t *testing.T) {
	p, d, messages, ticket := wokenPair(t, VLLM033)
	turn(t, p, d, messages, ticket, object{"cache_salt": "s"})
	expect(t, p, counts{"CorruptReads": 1})
	expect(t, d, counts{"ExpiredReads": 1})
}

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
