package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // it is how the server names a script, and protects nothing
	"embed"
	"encoding/hex"
	"strings"

	"github.com/redis/rueidis"
)

// luaFiles are the transitions, one script each, and the pieces that they include.
//
//go:embed lua/*.lua
var luaFiles embed.FS

// script is one transition. The server knows it by its hash once it has seen the text.
type script struct{ text, sha string }

var (
	claimScript    = newScript("claim")
	completeScript = newScript("complete")
	releaseScript  = newScript("release")
	renewScript    = newScript("renew")
	saveStepScript = newScript("savestep")
	getScript      = newScript("get")
	deleteScript   = newScript("delete")
	watchScript    = newScript("watch")
	touchScript    = newScript("touch")
)

func newScript(name string) *script {
	text := luaText(name)
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}

// luaText returns a script as the server gets it: without comments, and with what it includes in place.
func luaText(name string) string {
	file, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("redisstore: " + err.Error()) // it is in the program
	}
	var b strings.Builder
	for line := range strings.Lines(string(file)) {
		line = strings.TrimSpace(line)
		if piece, ok := strings.CutPrefix(line, "--include "); ok {
			b.WriteString(luaText(piece))
			continue
		}
		line, _, _ = strings.Cut(line, "-- ")
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// call is a script with its keys and arguments in one value, so that it needs no further allocation.
type call struct {
	script *script
	keys   keys
	args   [10]string
	n      int
}

func (c *call) with(args ...string) *call {
	c.n = copy(c.args[:], args)
	return c
}

// run sends the script by its hash, and by its text where the server does not know it: one that was started
// anew, or took over from another, knows none.
func (s *Store) run(ctx context.Context, c *call) (rueidis.RedisMessage, error) {
	res := s.client.Do(ctx, c.byHash(s.client.B()))
	if isNoScript(res.Error()) {
		res = s.client.Do(ctx, c.byText(s.client.B()))
	}
	msg, err := res.ToMessage()
	return msg, markCorrupt(err)
}

func (c *call) byHash(b rueidis.Builder) rueidis.Completed {
	return b.Evalsha().Sha1(c.script.sha).Numkeys(3).Key(c.keys.record, c.keys.saved, c.keys.steps).Arg(c.args[:c.n]...).Build()
}

func (c *call) byText(b rueidis.Builder) rueidis.Completed {
	return b.Eval().Script(c.script.text).Numkeys(3).Key(c.keys.record, c.keys.saved, c.keys.steps).Arg(c.args[:c.n]...).Build()
}

func isNoScript(err error) bool {
	if err == nil {
		return false
	}
	e, ok := rueidis.IsRedisErr(err)
	return ok && e.IsNoScript()
}
