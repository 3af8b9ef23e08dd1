package server_test

import (
	"testing"

	"carryover/server"
)

// Front ends send a request for a title, or for tags, under the id of the conversation.
func TestConversation_TaskTakesNoPart(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{})
		r.wantOK(r.turn("c", 1, stream), "miss;reason=first_turn")
		// By its messages the task could use the ticket, and its own would displace it.
		r.wantOK(r.turn("c", 2, stream, "X-Conversation-Task", "title_generation"), "off")
		r.wantOK(r.turn("c", 2, stream), "hit;")
	})
}

// Open WebUI fills a template in: it sends an empty value with a turn of the chat, and before 0.9.7 the template itself with each.
func TestConversation_TaskHeaderWithoutATaskIsATurn(t *testing.T) {
	r := newRig(t, setup{})
	for n, value := range []string{"", " ", "{{TASK}}"} {
		r.wantOK(r.turn("c", n+1, true, "X-Conversation-Task", value), []string{"miss;reason=first_turn", "hit;", "hit;"}[n])
	}
}

func TestConversation_FinalTurnUsesATicketAndLeavesNone(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r := newRig(t, setup{cfg: releasing})
		r.wantOK(r.turn("c", 1, stream), "miss;reason=first_turn")
		r.wantOK(r.turn("c", 2, stream, "X-Conversation-Final", "true"), "hit;")
		r.wantStored(2, "final")
		if n := r.store.Len(); n != 0 {
			t.Errorf("got %d conversations, want none", n)
		}
		r.shot()
		r.wantCarried(2, left(r.decode[0].seen()[1]))
		r.wantOK(r.turn("c", 3, stream), "miss;reason=nothing_stored")
	})
}

// What the conversation has left on other branches is of no use to anybody either.
func TestConversation_FinalTurnGivesUpEveryBranch(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { releasing(c); c.ReleaseBacklog = 100 }})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantOK(r.send(ask("c", true, "another question")), "miss;reason=history_rewritten")
	r.wantOK(r.turn("c", 2, true, "X-Conversation-Final", " TRUE "), "hit;")
	if n := r.store.Len(); n != 0 {
		t.Errorf("got %d conversations, want none", n)
	}
	decoded := r.decode[0].seen()
	r.shot()
	r.shot()
	r.wantCarried(3, left(decoded[2]))
	r.wantCarried(4, left(decoded[1]))
}

// One that fails is sent again, and may use what the conversation has left.
func TestConversation_FinalTurnThatFailsGivesUpNothing(t *testing.T) {
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	r.wantOK(r.send(ask("c", true, "another question")), "miss;reason=history_rewritten")
	r.decode[0].next(breaks(func(l leg) []string { return chatEvents(l)[:3] }, "data: {"))
	if p := r.turn("c", 2, true, "X-Conversation-Final", "true"); p.err == nil {
		t.Errorf("got %d %q, want it broken", p.status, p.body)
	}
	r.wantStored(3, "final")
	r.wantOK(r.send(ask("c", true, "another question", "Hello world", "and then?"), "X-Conversation-Final", "true"), "hit;")
	if n := r.store.Len(); n != 0 {
		t.Errorf("got %d conversations, want none", n)
	}
}

func TestConversation_OnlyTrueIsFinal(t *testing.T) {
	r := newRig(t, setup{})
	for n, value := range []string{"", "false", "1", "{{FINAL}}"} {
		r.wantOK(r.turn("c", n+1, true, "X-Conversation-Final", value), []string{"miss;reason=first_turn", "hit;", "hit;", "hit;"}[n])
	}
}
