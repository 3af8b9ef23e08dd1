#!/usr/bin/env bash
# Checks that packages import only what the architecture allows (ARCHITECTURE.md,
# "Packages"). Prints every violation and exits 1 if there is one. Test files may
# import anything of ours except a main package.
set -euo pipefail
cd "$(dirname "$0")/.."

violations=$(go list -f '{{.ImportPath}}:{{join .Imports " "}}' ./... | awk '
function bad(why) { print package " imports " name ": " why; n++ }
{
	split($0, line, ":"); package = line[1]; count = split(line[2], imports, " ")
	for (i = 1; i <= count; i++) {
		name = imports[i]
		# Ours.
		if (name == "carryover/porttest") {
			if (package !~ /test$/) bad("ports are reserved for tests")
		} else if (name ~ /^carryover\//) {
			if (package ~ /^carryover\/upstream\/vllmsim/) {
				if (name !~ /^carryover\/upstream\/vllmsim/) bad("the simulator must not share our mistakes")
				room = package; sub(/^carryover\/upstream\/vllmsim\/?/, "", room)
				used = name; sub(/^carryover\/upstream\/vllmsim\/?/, "", used)
				if (used == "") bad("the simulator is put together at its root, which its rooms do not know")
				else if (room ~ /^(config|bpe|kv|fault|zmtp)$/) bad("a leaf of the simulator imports nothing of ours")
				else if (room == "kvevents" && used !~ /^(config|zmtp)$/) bad("the events of the simulator read their configuration and send")
				else if (room == "engine" && used !~ /^(config|bpe|kv|kvevents|fault)$/) bad("the engine of the simulator knows no API and no connector")
				else if (room == "wire" && used !~ /^(config|template|fault|engine)$/) bad("what the simulator sends knows no API")
				else if (room == "request" && used !~ /^(config|template|engine|wire)$/) bad("the simulator reads requests without answering them")
				else if (room == "api" && used !~ /^(config|bpe|kv|template|fault|engine|wire|request)$/) bad("the APIs of the simulator know no connector and no operators")
				else if (room == "ops" && used !~ /^(config|fault|engine|wire)$/) bad("the endpoints for operators of the simulator know no API")
				else if (room == "connector" && used !~ /^(config|kv|fault|engine|zmtp)$/) bad("a connector of the simulator knows its engine only")
				else if (room == "template" && used !~ /^(config|bpe|kv)$/) bad("templates of the simulator import its configuration, tokenizer and memory only")
			} else if (package ~ /^carryover\/(sse\/rawjson|account)/) {
				bad("the leaf imports nothing of ours")
			} else if (name == "carryover/account") {
				if (package !~ /^carryover\/(server|convcache|upstream)/) bad("accounts bound what server, convcache and upstream keep")
			} else if (name == "carryover/sse/rawjson") {
				if (package !~ /^carryover\/(server|convcache|upstream|sse)/) bad("raw JSON is read by server, convcache, upstream and sse")
			} else if (package ~ /^carryover\/cmd\/pdbench(\/|$)/) {
				part = package; sub(/^carryover\/cmd\/pdbench\/?/, "", part)
				used = name; sub(/^carryover\/cmd\/pdbench\//, "", used)
				if (used == name) bad("the benchmark tool must not share our mistakes")
				else if (part ~ /^(wire|process|result)$/) bad("a leaf of the benchmark tool imports nothing of ours")
				else if (part == "engines" && used != "wire") bad("the engines of the benchmark tool read messages and know no client")
				else if (part == "load" && used !~ /^(engines|wire|result)$/) bad("the clients of the benchmark tool know no contender")
				else if (part == "talk" && used != "result" || part == "fleet" && used != "process") bad("conversations and simulated fleets know each other and the reports not")
				else if (part == "contender" && used !~ /^(engines|load|process)$/) bad("a contender serves workloads and judges nothing")
			} else if (name ~ /^carryover\/cmd\//) {
				part = name; sub(/^carryover\/cmd\/carryover\//, "", part)
				user = package; sub(/^carryover\/cmd\/carryover\//, "", user)
				if (part !~ /^(command|config(\/.*)?|app|doctor|demo|cli|testrig)$/) bad("a main package is imported by none")
				else if (package !~ /^carryover\/cmd\/carryover(\/|$)/) bad("the parts of the program are imported by the program only")
				else if (part == "testrig") bad("a package for tests is imported by tests only")
				else if (user == "command") bad("the leaf imports no other part of the program")
				else if (user == "config" && part !~ /^(command|config\/)/) bad("settings are read without the program")
				else if (user == "app" && part !~ /^(command|config)/) bad("the program is put together without its commands")
				else if (user ~ /^(doctor|demo)$/ && part !~ /^(command|config|app)/) bad("a command imports no other command")
			} else if (package ~ /^carryover\/(cmd|scripts)\//) {
				# The program and the scripts may import anything else of ours.
			} else if (package ~ /^carryover\/upstream\/(msgpack|zmq\/zmtp)(\/|$)/) {
				bad("the leaf imports nothing of ours")
			} else if (name ~ /^carryover\/upstream\/(msgpack|zmq\/zmtp)$/) {
				if (package !~ /^carryover\/(upstream\/|cmd\/)/) bad("MessagePack and ZeroMQ are read by sub-packages of upstream and by cmd")
				if (package ~ /^carryover\/upstream\/connector/) bad("a connector sends nothing")
			} else if (package ~ /^carryover\/upstream\/(http1|body)$/) {
				bad("the leaf imports nothing of ours")
			} else if (name == "carryover/upstream/body") {
				if (package !~ /^carryover\/(server|upstream)(\/|$)/) bad("requests are read by server and upstream, and by cmd")
			} else if (name == "carryover/upstream/http1") {
				if (package != "carryover/upstream") bad("HTTP to engines is spoken by upstream itself")
			} else if (package == "carryover/server") {
				if (name !~ /^carryover\/(convcache|upstream(\/fleet(\/[a-z]+)?)?|upstream\/fleet\/facts|sse|server\/record|server\/events|server\/proof|server\/answer|server\/queue|server\/apierror|server\/admission|server\/background|server\/connlimit|server\/suggest|server\/outline|server\/request|server\/storetime|server\/pins|server\/reuse|server\/pick|server\/turn|server\/quarantine)$/) bad("server imports convcache, upstream, its fleet and what is known of engines, sse, and its own record, requests, picker, proofs, readers of answers, errors, admission, background work, queue, bound of connections, suggestions, outlines, bounds of store operations, pins, quarantines and kinds of events only")
			} else if (package == "carryover/server/apierror") {
				if (name !~ /^carryover\/(sse|upstream(\/body)?|server\/(background|pick|queue|record|request))$/) bad("errors are shaped without engines and turns")
			} else if (package == "carryover/server/admission") {
				if (name != "carryover/server/queue") bad("admission knows names of clients and its queues only")
			} else if (package == "carryover/server/answer") {
				if (name !~ /^carryover\/(convcache|sse|upstream(\/fleet\/facts)?|server\/(proof|record|outline))$/) bad("readers of answers import proofs, the record, outlines, convcache, sse, upstream and what is known of engines only")
			} else if (package == "carryover/server/request") {
				if (name !~ /^carryover\/(convcache|server\/record)$/) bad("a request is read without engines: it imports the keys of convcache and the record only")
			} else if (package == "carryover/server/proof") {
				if (name !~ /^carryover\/(convcache|upstream(\/fleet(\/[a-z]+)?)?)$/) bad("the proofs import convcache, upstream and its fleet only")
			} else if (package == "carryover/server/pins") {
				if (name !~ /^carryover\/(convcache|upstream(\/fleet(\/[a-z]+)?)?|server\/(continuation|proof|quarantine|record))$/) bad("pins import convcache, upstream and its fleet, what is learnt of continuations, proofs, quarantines and records of turns only")
			} else if (package == "carryover/server/pick") {
				if (name !~ /^carryover\/(upstream(\/fleet(\/[a-z]+)?)?|server\/(queue|record|request))$/) bad("the picker imports upstream and its fleet, the queue, requests and records of turns only")
			} else if (package == "carryover/server/reuse") {
				if (name !~ /^carryover\/(convcache|upstream(\/fleet(\/[a-z]+)?)?|server\/(answer|continuation|outline|pins|proof|quarantine|record|request))$/) bad("tickets are found and made without the turn: reuse imports convcache, upstream and its fleet, and of server requests, proofs, answers, the record, pins, quarantines and outlines only")
			} else if (package == "carryover/server/turn") {
				if (name !~ /^carryover\/(convcache|sse|upstream(\/fleet(\/[a-z]+)?)?|server\/(admission|answer|apierror|background|pick|pins|proof|quarantine|record|request|reuse))$/) bad("turns import convcache, sse, upstream and its fleet, and of server what their steps need, but no HTTP routes and observers")
			} else if (name == "carryover/server/turn") {
				if (package !~ /^carryover\/(server$|cmd\/carryover\/)/) bad("turns are run by the server only")
			} else if (package == "carryover/server/quarantine") {
				if (name !~ /^carryover\/(convcache|upstream(\/fleet(\/[a-z]+)?)?|server\/(events|proof|storetime))$/) bad("quarantines import convcache, upstream and its fleet, proofs, bounds of store operations, and the kinds of events that they tell operators of, only")
			} else if (package == "carryover/server/record") {
				if (name != "carryover/upstream") bad("the record of a turn imports upstream only")
			} else if (package == "carryover/server/continuation") {
				if (name !~ /^carryover\/(convcache|upstream\/body)$/) bad("continuations are learnt from keys and kinds of requests only")
			} else if (package == "carryover/server/admin") {
				if (name !~ /^carryover\/(upstream(\/fleet(\/[a-z]+)?)?|server\/(events|journal))$/) bad("the listener for operators imports upstream, its fleet, the journal and the events only")
			} else if (package == "carryover/server/journal") {
				if (name !~ /^carryover\/(server\/record|upstream)$/) bad("the journal reads records of turns only")
			} else if (package == "carryover/server/telemetry") {
				if (name !~ /^carryover\/(server(\/record)?|upstream(\/fleet(\/[a-z]+)?)?|convcache)$/) bad("metrics and spans import server and its record, convcache, upstream and its fleet only")
			} else if (package == "carryover/server/outline") {
				if (name != "carryover/upstream") bad("outlines are made of requests only")
			} else if (package ~ /^carryover\/server\/(queue|background|connlimit|suggest|events)$/) {
				bad("the queue, background work, suggestions, events, and the bound of connections import nothing of ours")
			} else if (package == "carryover/server/storetime") {
				if (name != "carryover/convcache") bad("bounds of store operations import convcache only")
			} else if (name == "carryover/upstream/connector") {
				if (package !~ /^carryover\/upstream\/connector\//) bad("what connectors share is theirs")
			} else if (name ~ /^carryover\/upstream\/connector\//) {
				bad("only cmd picks a connector")
			} else if (package == "carryover/convcache/pyjson") {
				bad("the leaf imports sse/rawjson only")
			} else if (name == "carryover/convcache/pyjson") {
				if (package != "carryover/convcache") bad("how Python prints JSON concerns histories only")
			} else if (package ~ /^carryover\/convcache\//) {
				if (name != "carryover/convcache") bad("a sub-package of convcache imports convcache and sse/rawjson only")
			} else if (package == "carryover/upstream/fleet" && name ~ /^carryover\/upstream\/fleet\//) {
				continue
			} else if (package ~ /^carryover\/upstream\//) {
				if (name != "carryover/upstream") bad("a sub-package of upstream imports upstream, sse/rawjson, upstream/msgpack and upstream/zmq/zmtp only, and a connector what connectors share")
			} else bad("convcache, upstream and sse import sse/rawjson only")
		}
		# Theirs.
		if (name ~ /labstack\/echo/ && package != "carryover/server") bad("echo lives in server")
		if (name ~ /redis\/go-redis/ && package !~ /^carryover\/convcache\/redis(store|test)$/) bad("Redis is spoken to in convcache/redisstore, and in redistest for tests")
		if (name ~ /spf13\/cobra/ && package !~ /^carryover\/cmd\//) bad("the command line lives in cmd")
		if (name ~ /go.yaml.in\/yaml/ && package !~ /^carryover\/cmd\// && package != "carryover/upstream/discovery") bad("YAML is read in cmd and upstream/discovery")
		if (name ~ /tinylib\/msgp/ && package !~ /^carryover\/upstream\/(msgpack|zmq\/(kvready|zmtp\/zmqtest)|vllmsim\/(kvevents|connector))$/) bad("MessagePack is read by upstream/msgpack, and written by upstream/zmq/kvready, the simulator, and zmqtest for tests")
		if (name ~ /tidwall\/gjson/) bad("raw JSON is read by sse/rawjson; gjson is a reference for tests")
		if (name ~ /go-zeromq/ && package !~ /^carryover\/upstream\/(zmq\/zmtp|vllmsim)$/) bad("zmq4 lives in upstream/zmq/zmtp and upstream/vllmsim")
		if (name ~ /go.opentelemetry.io\/otel\/(sdk|exporters)/ && package !~ /^carryover\/cmd\//) bad("the OTel SDK lives in cmd")
	}
	if (package ~ /\/(utils?|common|helpers?|types|models|constants|interfaces)$/) { print package ": not a name for a package"; n++ }
}
END { if (n) exit 3 }
') || { printf '%s\n' "$violations"; exit 1; }
