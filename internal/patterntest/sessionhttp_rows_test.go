package patterntest

import (
	"database/sql"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/session"
)

// TestSessionRowsBesideKeys: the same requests, with a key each and in a session. The stored rows of the session do not
// grow with them.
func TestSessionRowsBesideKeys(t *testing.T) {
	const requests = 2000
	charge := func(w http.ResponseWriter, _ *http.Request, _ *sql.Tx) error {
		w.WriteHeader(http.StatusCreated)
		_, err := fmt.Fprint(w, `{"charged":1200,"balance":8800}`)
		return err
	}
	send := func(h http.Handler, method string, headers http.Header) http.Header {
		t.Helper()
		r := httptest.NewRequestWithContext(t.Context(), method, "/pay", strings.NewReader(`{"account":"alice","cents":1200}`))
		r.Header = headers
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusCreated {
			t.Fatal(w.Code, w.Body)
		}
		return w.Header()
	}
	size := func(h *handle[*sql.Tx]) int {
		return h.number(t, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()")
	}

	keyed := onSQLite(t)
	byKey, err := httponce.HandleTx(keyed.receiver, httponce.Unscoped(), charge, nil)
	must(t, err)
	before := size(keyed)
	for i := range requests {
		send(byKey, http.MethodPost, http.Header{"Idempotency-Key": {fmt.Sprintf("order-%d", i)}})
	}
	t.Logf("keys: %d bytes", size(keyed)-before)
	if n := keyed.number(t, "SELECT count(*) FROM everonce_record"); n != requests {
		t.Errorf("%d records, want one for each request", n)
	}

	numbered := onSQLite(t)
	s := newSessions(t, numbered, session.Config{}, nil)
	bySession, err := httponce.HandleSession(s, httponce.Unscoped(), charge, nil)
	must(t, err)
	register, err := httponce.Sessions(s, httponce.Unscoped(), nil)
	must(t, err)
	before = size(numbered)
	h := http.Header{"Idempotency-Session-Secret": {"YWFhYWFhYWFhYWFhYWFhYQ"}}
	h.Set("Idempotency-Session", send(register, http.MethodPost, h).Get("Idempotency-Session"))
	for i := range requests {
		h.Set("Idempotency-Session-Request", fmt.Sprint(i+1))
		h.Set("Idempotency-Session-Mark", fmt.Sprint(i))
		send(bySession, http.MethodPost, h)
	}
	t.Logf("a session: %d bytes", size(numbered)-before)
	if n := numbered.number(t, "SELECT count(*) FROM everonce_session") + numbered.number(t, "SELECT count(*) FROM everonce_session_answer"); n != 2 {
		t.Errorf("%d rows, want the session and its last answer", n)
	}
	if grown := size(numbered) - before; grown > 64<<10 {
		t.Errorf("the session's database has grown by %d bytes", grown)
	}
}
