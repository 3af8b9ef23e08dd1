package main

import (
	"context"
	"fmt"
)

// byContent is what the program says of where it has found the conversation of a turn that told no id.
const byContent = "content"

// turnRecord is what operators see of a turn, as far as it is looked at.
type turnRecord struct {
	Turn         string `json:"turn"`
	Conversation string `json:"conversation"`
	Source       string `json:"id_source"`
	Outcome      string `json:"outcome"`
	Reason       string `json:"reason"`
	Offered      int    `json:"tokens_offered"`
	Prompt       int    `json:"prompt_tokens"`
}

// records reads the records of all turns, the oldest first.
func (d *deployment) records(ctx context.Context) (turns []turnRecord, err error) {
	var seen struct {
		Turns []turnRecord `json:"turns"`
	}
	if err := get(ctx, d.admin+"/admin/turns?limit=4096", &seen); err != nil {
		return nil, err
	}
	for i := range seen.Turns {
		turns = append(turns, seen.Turns[len(seen.Turns)-1-i])
	}
	return turns, nil
}

// unnamed counts the conversations that were found by content, and their turns. None of them has said that it is over, so that each may have left
// something.
func unnamed(turns []turnRecord) (conversations, asked int) {
	names := map[string]bool{}
	for _, turn := range turns {
		if turn.Source == byContent {
			names[turn.Conversation] = true
			asked++
		}
	}
	return len(names), asked
}

// hitFromTheSecondOn checks that the suite's conversations were found without an id, and that each has reused KV in all turns but its first:
// the very first conversation since the program has started too.
func hitFromTheSecondOn(turns []turnRecord) (summary string, err error) {
	held, offered, prompts := map[string]int{}, 0, 0
	for n, turn := range turns {
		held[turn.Conversation]++
		switch first := held[turn.Conversation] == 1; {
		case turn.Source != byContent:
			return "", fmt.Errorf("turn %d was found by %q, want by %s", n+1, turn.Source, byContent)
		case first && (turn.Outcome == "hit" || turn.Reason != "first_turn"), !first && turn.Outcome != "hit":
			return "", fmt.Errorf("turn %d of %d, the %d. of its conversation: %s %s; all: %+v", n+1, len(turns), held[turn.Conversation], turn.Outcome, turn.Reason, turns)
		case !first:
			offered, prompts = offered+turn.Offered, prompts+turn.Prompt
		}
	}
	if len(held) == 0 || len(turns) < 3*len(held) {
		return "", fmt.Errorf("%d turns of %d conversations; all: %+v", len(turns), len(held), turns)
	}
	return fmt.Sprintf("%d turns of %d conversations without ids, of whose later prompts %d of %d tokens were offered", len(turns), len(held), offered, prompts), nil
}
