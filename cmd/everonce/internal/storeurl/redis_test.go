package storeurl

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/redis/rueidis"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
	"github.com/everonce/everonce/store/redisstore"
)

// A Redis store opens, lists its records, and reveals no password.
func TestRedis(t *testing.T) {
	t.Parallel()
	server := testserver.URL(t, "redis")
	opts := Options{TablePrefix: "u" + rand.Text() + ":"}
	for _, open := range []func() (Store, error){
		func() (Store, error) { return create(t.Context(), server, opts) },
		func() (Store, error) { return Open(t.Context(), server, opts) },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if page, err := s.List(t.Context(), driver.ListRequest{}); err != nil || len(page.Records) != 0 {
			t.Errorf("%d records, %v", len(page.Records), err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for url, want := range map[string]error{
		"redis://127.0.0.1:port":               ErrURL,
		"redis://u:hush-hush@127.0.0.1:1/none": ErrURL,
		"redis://u:hush%zz@127.0.0.1:1":        ErrURL,
		"redis://u:hush-hush@127.0.0.1:1":      everonce.ErrStore,
	} {
		_, err := Open(t.Context(), url, Options{})
		if !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %v, and no password", url, err, want)
		}
	}
	if _, err := Open(t.Context(), server, Options{Schema: "public"}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a schema: %v, want ErrInvalidArgument", err)
	}
	if _, err := Open(t.Context(), server, Options{TablePrefix: "{x}"}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a prefix with braces: %v, want ErrInvalidArgument", err)
	}
}

// A service is refused a server that does not tell whether it forgets; who looks and settles, which may be urgent, is
// not.
func TestRedisOfWhichNothingIsKnown(t *testing.T) {
	t.Parallel()
	server, err := url.Parse(testserver.URL(t, "redis"))
	if err != nil {
		t.Fatal(err)
	}
	opt, err := rueidis.ParseURL(server.String())
	if err != nil {
		t.Fatal(err)
	}
	opt.DisableCache = true
	admin, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	silent := "everonce-" + rand.Text()
	acl := func(args ...string) error {
		return admin.Do(context.Background(), admin.B().Arbitrary("ACL").Args(args...).Build()).Error()
	}
	if err := acl("SETUSER", silent, "on", ">secret", "~*", "&*", "+@all", "-config", "-info"); err != nil {
		t.Fatal(err)
	}
	defer acl("DELUSER", silent) //nolint:errcheck // it can do nothing
	server.User = url.UserPassword(silent, "secret")
	opts := Options{TablePrefix: "u" + rand.Text() + ":"}
	if _, err := create(t.Context(), server.String(), opts); !errors.Is(err, everonce.ErrInvalidArgument) || !errors.Is(err, redisstore.ErrRisk) {
		t.Errorf("for a service: %v, want ErrInvalidArgument and ErrRisk", err)
	}
	s, err := Open(t.Context(), server.String(), opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
