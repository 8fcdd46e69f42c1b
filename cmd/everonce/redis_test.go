package main

import (
	"context"
	"crypto/rand"
	"testing"

	"github.com/redis/rueidis"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/everonce/everonce/internal/testing/testserver"
	"github.com/everonce/everonce/store/redisstore"
)

// TestScriptsOnRedis runs the program against Redis: $STORE is its URL, under $PREFIX there is one record of each kind.
func TestScriptsOnRedis(t *testing.T) {
	url := testserver.URL(t, "redis")
	opt, err := rueidis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	opt.DisableCache = true
	client, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	prefix := "cli-" + rand.Text() + ":"
	t.Cleanup(func() {
		defer client.Close()
		removeKeys(t, client, prefix)
	})
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/redis",
		RequireExplicitExec: true,
		Cmds:                commands,
		Setup: func(env *testscript.Env) error {
			store, err := redisstore.New(t.Context(), client, &redisstore.Options{KeyPrefix: prefix})
			if err != nil {
				return err
			}
			env.Setenv("STORE", url)
			env.Setenv("PREFIX", prefix)
			if err := populate(store); err != nil {
				return err
			}
			return setup(env)
		},
	})
}

// removeKeys runs after the test, whose context is over.
func removeKeys(t *testing.T, client rueidis.Client, prefix string) {
	t.Helper()
	ctx := context.Background()
	for cursor := uint64(0); ; {
		page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
		if err == nil && len(page.Elements) > 0 {
			err = client.Do(ctx, client.B().Unlink().Key(page.Elements...).Build()).Error()
		}
		if err != nil {
			t.Errorf("remove the keys of the test: %v", err)
			return
		}
		if cursor = page.Cursor; cursor == 0 {
			return
		}
	}
}
