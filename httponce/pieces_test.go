package httponce_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/internal/mapdb"
	"github.com/everonce/everonce/store/memstore"
)

// endsCounted counts the calls of an observer's End.
type endsCounted struct{ ends int }

func (*endsCounted) Start(ctx context.Context, _ everonce.Op) context.Context { return ctx }
func (c *endsCounted) End(context.Context, everonce.Observation)              { c.ends++ }

// noise is text that shows when a part of it is lost, repeated, or out of order.
func noise(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		b.WriteString(strings.Repeat(string(rune('a'+i%26)), i%97+1))
	}
	return b.String()[:n]
}

// A large answer is kept in pieces, whatever its writes and the receiver's limit are, and replayed whole. The pieces
// are no effects: an observer does not hear of them.
func TestLargeAnswersAreKeptInPieces(t *testing.T) {
	for _, tc := range []struct{ maxResult, size, write int }{
		{4 << 10, 3_900, 100},
		{4 << 10, 4_000, 1000},
		{4 << 10, 4 << 10, 5000},
		{4 << 10, 100_000, 7},
		{10_000, 10_000, 10_000},
		{10_000, 65_537, 65_537},
		{0, 256 << 10, 4096},
		{0, 1 << 20, 1 << 20},
		{0, 1 << 20, 300_000},
	} {
		text, observer := noise(tc.size), &endsCounted{}
		recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{MaxResult: tc.maxResult, Observer: observer})
		if err != nil {
			t.Fatal(err)
		}
		protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, status := range []int{http.StatusOK, http.StatusConflict} {
			calls := 0
			h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls++
				w.Header().Set("X-A", "a")
				w.WriteHeader(status)
				for s := text; s != ""; {
					n := min(len(s), tc.write)
					if _, err := io.WriteString(w, s[:n]); err != nil {
						t.Fatal(err)
					}
					s = s[n:]
				}
			}))
			key := http.StatusText(status)
			for i, marker := range []string{"", "true", "true"} {
				res := again(h, key)
				if body := bodyOf(t, res); body != text || res.StatusCode != status || res.Header.Get("Idempotent-Replayed") != marker || res.Header.Get("X-A") != "a" {
					t.Errorf("%+v, %d, answer %d: %d, %d bytes, the right ones: %v, %v", tc, status, i, res.StatusCode, len(body), body == text, res.Header)
				}
			}
			if calls != 1 || observer.ends != 3 {
				t.Errorf("%+v: %d calls, and the observer got %d", tc, calls, observer.ends)
			}
			observer.ends = 0
		}
	}
}

// inPieces returns a handler whose answers have 100,000 bytes, and their store.
func inPieces(t *testing.T, maxResult int, life everonce.Lifetime) (*memstore.Store, http.Handler, *int) {
	t.Helper()
	return inPiecesOf(t, maxResult, life, everonce.Lifetime{})
}

// inPiecesOf is inPieces for a route with its own lifetime.
func inPiecesOf(t *testing.T, maxResult int, life, route everonce.Lifetime) (*memstore.Store, http.Handler, *int) {
	t.Helper()
	store, calls := memstore.New(nil), new(int)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{MaxResult: maxResult, Lifetime: life})
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, func(*http.Request) (string, error) { return "tenant", nil }, &httponce.Options{Route: httponce.Route{Lifetime: route}})
	if err != nil {
		t.Fatal(err)
	}
	return store, protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		*calls++
		w.Header().Set("Location", "/1")
		_, _ = io.WriteString(w, noise(100_000))
	})), calls
}

// A missing piece elides the answer: it is not executed again, and no client gets half of it.
func TestAMissingPieceElidesTheAnswer(t *testing.T) {
	store, h, calls := inPieces(t, 10_000, everonce.Lifetime{})
	again(h, "k")
	pieces := everonce.ScopeOf("tenant", "POST", "/", "answer")
	if res, err := store.DeleteScope(context.Background(), driver.DeleteScopeRequest{Scope: pieces, Limit: 1}); err != nil || res.Records != 1 {
		t.Fatal(res, err)
	}
	if res := again(h, "k"); bodyOf(t, res) != "" || res.Header.Get("Location") != "/1" || res.Header.Get("Idempotent-Replayed") != "elided" || *calls != 1 {
		t.Errorf("%v, %d calls", res, *calls)
	}
	// Deleting a tenant deletes the pieces of its answers.
	if _, err := store.DeleteScope(context.Background(), driver.DeleteScopeRequest{Scope: everonce.ScopeOf("tenant"), Limit: 1000}); err != nil {
		t.Fatal(err)
	}
	if list, err := store.List(context.Background(), driver.ListRequest{}); err != nil || len(list.Records) != 0 {
		t.Errorf("%d records are left, %v", len(list.Records), err)
	}
}

// A receiver that keeps no results to speak of keeps no pieces.
func TestAReceiverWithoutRoomKeepsNoPieces(t *testing.T) {
	store, h, calls := inPieces(t, 1000, everonce.Lifetime{})
	if res := again(h, "k"); bodyOf(t, res) != noise(100_000) {
		t.Error("the first client did not get it")
	}
	if res := again(h, "k"); bodyOf(t, res) != "" || res.Header.Get("Idempotent-Replayed") != "elided" || *calls != 1 {
		t.Errorf("%v, %d calls", res, *calls)
	}
	if list, err := store.List(context.Background(), driver.ListRequest{}); err != nil || len(list.Records) != 1 {
		t.Errorf("%d records, %v", len(list.Records), err)
	}
}

// An answer never outlives its pieces: it is whole to the end of its retention.
func TestPiecesOutliveTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, h, _ := inPieces(t, 10_000, everonce.Lifetime{Retention: time.Hour, Remember: time.Hour})
		again(h, "k")
		time.Sleep(time.Hour - time.Second)
		if res := again(h, "k"); bodyOf(t, res) != noise(100_000) {
			t.Errorf("at the end of its retention: %v", res)
		}
		time.Sleep(2 * time.Second)
		if res := again(h, "k"); bodyOf(t, res) != "" || res.Header.Get("Idempotent-Replayed") != "expired" || res.Header.Get("Location") != "/1" {
			t.Errorf("after it: %v", res)
		}
	})
}

// The pieces are kept before the answer that names them. They stay so much longer than it as all of them, and the
// answer, may take to be recorded.
func TestPiecesAreKeptLongerThanTheAnswer(t *testing.T) {
	for name, life := range map[string]struct{ receiver, route everonce.Lifetime }{
		"by default": {}, "as was said": {receiver: everonce.Lifetime{Retention: time.Hour, Remember: time.Hour}}, "of a route": {route: everonce.Lifetime{Retention: 90 * 24 * time.Hour}},
	} {
		store, h, _ := inPiecesOf(t, 10_000, life.receiver, life.route)
		again(h, "k")
		list, err := store.List(t.Context(), driver.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var answer time.Time
		var pieces []time.Time
		for _, rec := range list.Records {
			if rec.Name == "k" {
				answer = rec.ResultUntil
			} else {
				pieces = append(pieces, rec.ResultUntil)
			}
		}
		if answer.IsZero() || len(pieces) < 9 {
			t.Fatalf("%s: the answer until %v, %d pieces", name, answer, len(pieces))
		}
		const limit = 75 * time.Second // 30 s of them are Options.CompletionTimeout
		for _, until := range pieces {
			if until.Before(answer.Add(limit)) {
				t.Errorf("%s: a piece is kept for %v longer than its answer, want %v at least", name, until.Sub(answer), limit)
			}
		}
	}
}

// A receiver that keeps nothing of the size of a piece gets none, not even one that is left out for its size.
func TestAReceiverWithoutRoomForAPieceIsGivenNone(t *testing.T) {
	store := memstore.New(nil)
	recv, err := everonce.NewReceiver(store, everonce.Refuse, &everonce.Options{MaxResult: 1000})
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	again(protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, noise(600<<10)) })), "k")
	if list, err := store.List(t.Context(), driver.ListRequest{}); err != nil || len(list.Records) != 1 {
		t.Errorf("%d records, %v", len(list.Records), err)
	}
}

// The longest possible retention leaves room for the retention of the pieces.
func TestPiecesOfAnAnswerThatIsKeptForGood(t *testing.T) {
	_, h, calls := inPieces(t, 10_000, everonce.Lifetime{Retention: 100 * 365 * 24 * time.Hour})
	for range 2 {
		if res := again(h, "k"); bodyOf(t, res) != noise(100_000) || *calls != 1 {
			t.Errorf("%v, %d calls", res, *calls)
		}
	}
}

// A head that alone is larger than what one record keeps is no obstacle to the handler, and its answer is not kept by
// halves.
func TestAHeadThatIsLargerThanAPiece(t *testing.T) {
	recv, err := everonce.NewReceiver(memstore.New(nil), everonce.Refuse, &everonce.Options{MaxResult: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
	if err != nil {
		t.Fatal(err)
	}
	h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Long", noise(6<<10))
		_, _ = io.WriteString(w, noise(10_000))
	}))
	if res := again(h, "k"); bodyOf(t, res) != noise(10_000) || res.Header.Get("X-Long") != noise(6<<10) {
		t.Errorf("the first got %v", res)
	}
	if res := again(h, "k"); bodyOf(t, res) != "" || res.Header.Get("Idempotent-Replayed") != "elided" {
		t.Errorf("a repetition got %v", res)
	}
}

// otherPieces is a store whose pieces have another size than when they were kept.
type otherPieces struct {
	*memstore.Store
	change func([]byte) []byte
	full   bool // there is no room for them
}

func (s *otherPieces) Get(ctx context.Context, req driver.GetRequest) (driver.GetResult, error) {
	res, err := s.Store.Get(ctx, req)
	if res.Found && res.Record.Name != "k" {
		res.Record.Result.Data = s.change(bytes.Clone(res.Record.Result.Data))
	}
	return res, err
}

// Claim refuses the claim of a piece that would wait for somebody to settle it, should its process die.
func (s *otherPieces) Claim(ctx context.Context, req driver.ClaimRequest) (driver.ClaimResult, error) {
	switch {
	case req.Name == "k":
	case s.full:
		return driver.ClaimResult{}, driver.ErrStoreFull
	case !req.ExpireUnsettled:
		return driver.ClaimResult{}, errors.New("the outcome is lost")
	}
	return s.Store.Claim(ctx, req)
}

// A piece that is shorter or longer than its answer says does not belong to it, and one that could not be kept is
// missing: no client gets an answer composed of others, or half of one.
func TestAPieceThatIsAmissElidesTheAnswer(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"":        func(p []byte) []byte { return p },
		"shorter": func(p []byte) []byte { return p[1:] },
		"longer":  func(p []byte) []byte { return append(p, 'x') },
		"empty":   func([]byte) []byte { return []byte{} },
		"no room": nil,
	} {
		recv, err := everonce.NewReceiver(&otherPieces{memstore.New(nil), change, name == "no room"}, everonce.Refuse, nil)
		if err != nil {
			t.Fatal(err)
		}
		protect, err := httponce.Middleware(recv, httponce.Unscoped(), nil)
		if err != nil {
			t.Fatal(err)
		}
		h := protect(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, noise(600<<10)) }))
		if res := again(h, "k"); bodyOf(t, res) != noise(600<<10) {
			t.Errorf("%s: the first got %v", name, res)
		}
		want, mark := "", "elided"
		if name == "" {
			want, mark = noise(600<<10), "true"
		}
		if res := again(h, "k"); bodyOf(t, res) != want || res.StatusCode != http.StatusOK || res.Header.Get("Idempotent-Replayed") != mark {
			t.Errorf("%s: %v", name, res)
		}
	}
}

// In a transaction the pieces commit with the effects and the answer.
func TestPiecesInATransaction(t *testing.T) {
	db := mapdb.New()
	recv, err := everonce.NewTxReceiver[*mapdb.Tx](db, &everonce.Options{MaxResult: 10_000})
	if err != nil {
		t.Fatal(err)
	}
	h, err := httponce.HandleTx(recv, httponce.Unscoped(), func(w http.ResponseWriter, r *http.Request, tx *mapdb.Tx) error {
		if err := tx.Add("charge"); err != nil {
			return err
		}
		w.WriteHeader(http.StatusCreated)
		_, err := io.WriteString(w, noise(100_000))
		return err
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, marker := range []string{"", "true"} {
		if res := again(h, "k"); bodyOf(t, res) != noise(100_000) || res.Header.Get("Idempotent-Replayed") != marker || res.StatusCode != http.StatusCreated {
			t.Errorf("answer %d: %v", i, res)
		}
	}
	if n := db.Count("charge"); n != 1 {
		t.Errorf("%d charges", n)
	}
}

// A large answer is kept whole though its client has gone before it was written.
func TestPiecesSurviveTheClient(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	h := protected(t, nil, func(w http.ResponseWriter, _ *http.Request) {
		leave()
		_, _ = io.WriteString(w, noise(300<<10))
	})
	r := httptest.NewRequestWithContext(ctx, "POST", "/", strings.NewReader("{}"))
	r.Header.Set("Idempotency-Key", "k")
	h.ServeHTTP(httptest.NewRecorder(), r)
	if res := again(h, "k"); bodyOf(t, res) != noise(300<<10) || res.Header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the replay: %v", res)
	}
}

// The pieces of one answer are no other's: two keys of one route have their own.
func TestPiecesAreOneAnswersAlone(t *testing.T) {
	h := protected(t, nil, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat(r.Header.Get("Idempotency-Key"), 600<<10))
	})
	for range 2 {
		for _, key := range []string{"a", "b"} {
			if body := bodyOf(t, again(h, key)); body != strings.Repeat(key, 600<<10) {
				t.Errorf("%s got another answer", key)
			}
		}
	}
}
