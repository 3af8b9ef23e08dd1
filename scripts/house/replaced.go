package main

// replaced are the words that the glossary has replaced. Each row is what was renamed, and no more: held, kept, common, start, room,
// place and bar are good English where they name something else.
func replaced() []word {
	fleet := []string{"upstream/fleet"}
	types := []kind{ofType}
	return []word{
		{old: "pace", use: "the estimate of prefill speed", in: fleet, kinds: types, whole: true},
	}
}
