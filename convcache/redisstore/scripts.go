package redisstore

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

//go:embed shared.lua
var sharedLua string

//go:embed take.lua
var takeLua string

//go:embed put.lua
var putLua string

//go:embed mark.lua
var markLua string

//go:embed epoch.lua
var epochLua string

//go:embed pinned.lua
var pinnedLua string

// scripts are what Redis runs in one step each.
type scripts struct {
	take, put, mark, epoch, pinned *redis.Script
}

func newScripts(shared, take, put string) scripts {
	return scripts{
		take: redis.NewScript(shared + take), put: redis.NewScript(shared + put), mark: redis.NewScript(markLua),
		epoch: redis.NewScript(epochLua), pinned: redis.NewScript(pinnedLua),
	}
}

// runScript runs a script, and makes an error of the answer that it must not run there.
func runScript(ctx context.Context, script *redis.Script, server redis.UniversalClient, key string, args ...any) ([]any, error) {
	reply, err := script.Run(ctx, server, []string{key}, args...).Slice()
	if text(reply, 0) == "unfenced" {
		return nil, errNoFence
	}
	return reply, err
}

// text is a value of a reply, empty if there is none.
func text(reply []any, at int) string {
	if at >= len(reply) {
		return ""
	}
	s, _ := reply[at].(string)
	return s
}
