package redisstore_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce/internal/testing/testserver"
)

func noErr(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// serverURL is the server that the tests share.
func serverURL(t testing.TB) string {
	t.Helper()
	return testserver.URL(t, "redis")
}

func newClient(t testing.TB, url string) rueidis.Client {
	t.Helper()
	opt, err := rueidis.ParseURL(url)
	noErr(t, err)
	return dial(t, opt)
}

func dial(t testing.TB, opt rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(opt)
	noErr(t, err)
	t.Cleanup(client.Close)
	return client
}

// newPrefix returns a prefix of keys that no other test uses, and that are gone after the test.
func newPrefix(t testing.TB, client rueidis.Client) string {
	t.Helper()
	b := make([]byte, 6)
	_, err := rand.Read(b)
	noErr(t, err)
	prefix := "test-" + hex.EncodeToString(b) + ":"
	t.Cleanup(func() {
		ctx := context.Background()
		for cursor := uint64(0); ; {
			page, err := client.Do(ctx, client.B().Scan().Cursor(cursor).Match(prefix+"*").Count(1000).Build()).AsScanEntry()
			if err != nil {
				t.Errorf("cleaning up: %v", err)
				return
			}
			if len(page.Elements) > 0 {
				if err := client.Do(ctx, client.B().Unlink().Key(page.Elements...).Build()).Error(); err != nil {
					t.Errorf("cleaning up: %v", err)
				}
			}
			if cursor = page.Cursor; cursor == 0 {
				return
			}
		}
	})
	return prefix
}

func errOf[R any](_ R, err error) error { return err }
