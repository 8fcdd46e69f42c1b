package storeurl

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/internal/testserver"
)

// If the role may not create the tables, the error says who must, and how. Once the tables exist and the role has its
// rights, it needs no more.
func TestARoleThatMayNotCreateTables(t *testing.T) {
	t.Parallel()
	url := testserver.URL(t, "postgres")
	admin, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	run := func(text string) {
		t.Helper()
		if _, err := admin.Exec(context.Background(), text); err != nil { // the cleanup is one too
			t.Fatalf("%s: %v", text, err)
		}
	}
	name := "everonce_" + strings.ToLower(rand.Text())
	run("CREATE ROLE " + name + "; CREATE SCHEMA " + name + "; GRANT USAGE ON SCHEMA " + name + " TO " + name)
	t.Cleanup(func() {
		run("DROP SCHEMA " + name + " CASCADE; DROP ROLE " + name)
		admin.Close()
	})
	opts := Options{Schema: name}
	sep := "?"
	if strings.Contains(url, "?") {
		sep = "&"
	}
	wantRefused := func(when string) {
		t.Helper()
		if s, err := create(t.Context(), url+sep+"role="+name, opts); !errors.Is(err, everonce.ErrStore) || !strings.Contains(err.Error(), `run the output of "everonce schema"`) {
			t.Errorf("%s: %v, %v; want ErrStore, and what to do", when, s, err)
		}
	}
	wantRefused("without tables")
	text, err := Schema(opts)
	if err != nil {
		t.Fatal(err)
	}
	run(text)
	wantRefused("without rights on them")
	run("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA " + name + " TO " + name)
	s, err := create(t.Context(), url+sep+"role="+name, opts)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
