package storeurl

import (
	"crypto/rand"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/internal/testserver"
)

// A table opens where there is one, and is created for a service.
func TestDynamoDB(t *testing.T) {
	server := testserver.URL(t, "dynamodb")
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	at := "?region=eu-central-1&endpoint=" + url.QueryEscape(server)
	text := "dynamodb://u" + rand.Text() + at
	if _, err := Open(t.Context(), text, Options{}); !errors.Is(err, everonce.ErrSchema) {
		t.Fatalf("Open of a missing table: %v, want ErrSchema", err)
	}
	for _, open := range []func() (Store, error){
		func() (Store, error) { return create(t.Context(), text, Options{}) },
		func() (Store, error) { return Open(t.Context(), text, Options{}) },
	} {
		s, err := open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.List(t.Context(), driver.ListRequest{}); err != nil {
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for text, want := range map[string]error{
		"dynamodb://everonce?region=eu-central-1&endpoint=http%3A%2F%2F127.0.0.1%3A1": everonce.ErrStore,
		"dynamodb://" + at:                       ErrURL,
		"dynamodb://everonce/x":                  ErrURL,
		"dynamodb://u:hush-hush@everonce":        ErrURL,
		"dynamodb://everonce?regio=eu-central-1": ErrURL,
		"dynamodb://everonce?endpoint=localhost": ErrURL,
		"dynamodb://everonce:port?region=eu":     ErrURL,
		"dynamodb://ab?region=eu-central-1":      everonce.ErrInvalidArgument,
	} {
		_, err := Open(t.Context(), text, Options{})
		if !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want %v, and no secret", text, err, want)
		}
	}
	for _, opts := range []Options{{Schema: "public"}, {TablePrefix: "a_"}} {
		if _, err := Open(t.Context(), text, opts); !errors.Is(err, everonce.ErrInvalidArgument) {
			t.Errorf("%+v: %v, want ErrInvalidArgument", opts, err)
		}
	}
}
