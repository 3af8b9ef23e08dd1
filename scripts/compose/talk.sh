#!/bin/sh
# Holds one conversation of three turns with the proxy at $1 and prints what each turn reused; fails if the second or the third
# reused nothing. Simulated engines answer a message that begins with SAY by the rest of it, so that the history of every turn is
# known beforehand.
set -eu
said="Every night somebody looks at the sea, the wind and the stars from the shore of an island, and writes down what was new."
first='{"role": "user", "content": "SAY '$said'"}'
second="$first"', {"role": "assistant", "content": "'$said'"}, {"role": "user", "content": "SAY '$said'"}'
third="$second"', {"role": "assistant", "content": "'$said'"}, {"role": "user", "content": "Thank you."}'

# turn CONVERSATION MESSAGES prints the value of X-KV-Reuse.
turn() {
	curl -sS --fail-with-body --max-time 60 -D - -o /dev/null -H 'Content-Type: application/json' "$proxy/v1/chat/completions" \
		-d '{"model": "sim", "max_tokens": 100, "conversation_id": "'"$1"'", "messages": ['"$2"']}' |
		tr -d '\r' | sed -n 's/^[Xx]-[Kk][Vv]-[Rr]euse: //p'
}

proxy=$1
# With its first request of each shape the proxy learns what prefill makes of it.
for history in "$second" "$third"; do
	turn "warm-up-$$-${#history}" "$history" >/dev/null
done
hits=0
for number in 1 2 3; do
	case $number in 1) history=$first ;; 2) history=$second ;; *) history=$third ;; esac
	reuse=$(turn "talk-$$" "$history")
	echo "turn $number: $reuse"
	case $reuse in hit*) hits=$((hits + 1)) ;; esac
done
[ "$hits" -eq 2 ]
