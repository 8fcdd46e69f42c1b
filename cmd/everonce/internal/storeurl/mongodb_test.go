package storeurl

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
)

// A store of MongoDB's opens where there is one, is created for a service, and tells no password.
func TestMongoDB(t *testing.T) {
	t.Parallel()
	server := testserver.URL(t, "mongodb")
	head, query, _ := strings.Cut(server, "?")
	url := strings.TrimSuffix(head, "/") + "/everonce_test?" + query
	opts := Options{TablePrefix: "u" + rand.Text()}
	if _, err := Open(t.Context(), url, opts); !errors.Is(err, everonce.ErrSchema) {
		t.Fatalf("Open of a missing collection: %v, want ErrSchema", err)
	}
	s, err := create(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m := s.(*mongoDB)                                                                                                  //nolint:errcheck // it is what Create made
		if err := m.client.Database("everonce_test").Collection(opts.TablePrefix).Drop(context.Background()); err != nil { // the test's context has ended
			t.Error(err)
		}
	})
	opened, err := Open(t.Context(), url, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.List(t.Context(), driver.ListRequest{}); err != nil {
		t.Error(err)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
	for url, want := range map[string]error{
		server:                        ErrURL,
		"mongodb://127.0.0.1:port/db": ErrURL,
		"mongodb://u:hush-hush@127.0.0.1:1/db?serverSelectionTimeoutMS=50": everonce.ErrStore,
		"mongodb://u:hush-hush@h:99999/db":                                 ErrURL,
	} {
		_, err := Open(t.Context(), url, Options{})
		if !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %v, and no password", url, err, want)
		}
	}
	if _, err := Open(t.Context(), url, Options{Schema: "public"}); !errors.Is(err, everonce.ErrInvalidArgument) {
		t.Errorf("a schema: %v, want ErrInvalidArgument", err)
	}
}

func TestPartsOfMongoDB(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"mongodb://host/shop":                                {"shop"},
		"mongodb://a:1,b:2/shop?replicaSet=rs":               {"shop"},
		"mongodb+srv://user:p%40ss@cluster.example/shop":     {"shop", "p%40ss", "p@ss"},
		"mongodb://host":                                     {""},
		"mongodb://host/?tlsCertificateKeyFilePassword=hush": {"", "hush"},
		"mongodb://host/?TLSCERTIFICATEKEYFILEPASSWORD=h%zz": {"", "h%zz"},
		"mongodb://user:p%ss@host/shop":                      {"shop", "p%ss"},
	} {
		if database := databaseOf(text); database != want[0] {
			t.Errorf("%s: database %q, want %q", text, database, want[0])
		}
		secrets := secretsOf(text)
		for _, secret := range want[1:] {
			if !slices.Contains(secrets, secret) {
				t.Errorf("%s: %q is not among the secrets %q", text, secret, secrets)
			}
		}
	}
}
