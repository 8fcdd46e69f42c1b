package httponce_test

import (
	"encoding/binary"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/store/memstore"
)

// formats are answers as version 1 of their encoding keeps them, which every later version replays. None of it is ever
// changed: a version 2 has another first byte, and its own answers here.
var formats = map[string]struct {
	handler http.HandlerFunc
	opts    *httponce.Options
	stored  driver.SavedResult
	// The answer that a repetition gets.
	status  int
	header  http.Header
	body    string
	trailer http.Header
}{
	"with headers, and a body": {
		stored: driver.SavedResult{Kind: driver.ResultValue, Codec: "http/1", Data: []byte("\x01\x00\xc9\x01\x01\bLocation\x02\v/payments/1r-1\x00\xff"), Summary: []byte("\x01\x00\xc9\x01\x01\bLocation\x02\v/payments/1")},
		handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Location"] = []string{"/payments/1"}
			w.WriteHeader(http.StatusCreated)
			w.Write([]byte("r-1\x00\xff")) //nolint:errcheck // it is recorded
		},
		status: 201, header: http.Header{"Location": {"/payments/1"}}, body: "r-1\x00\xff",
	},
	"of fields with several values, or none": {
		stored: driver.SavedResult{Kind: driver.ResultValue, Codec: "http/1", Data: []byte("\x01\x00\xc8\x01\x01\ax-lower\x06\x01a\x00\x01b"), Summary: []byte("\x01\x00\xc8\x01\x01\ax-lower\x06\x01a\x00\x01b")},
		handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["x-lower"] = []string{"a", "", "b"}
		},
		status: 200, header: http.Header{"x-lower": {"a", "", "b"}},
	},
	"with fields that others have set": {
		stored: driver.SavedResult{Kind: driver.ResultValue, Codec: "http/1", Data: []byte("\x01\x00\xc8\x01\x01\aX-Outer\x03\x05inner"), Summary: []byte("\x01\x00\xc8\x01\x01\aX-Outer\x03\x05inner")},
		handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Add("X-Outer", "inner")
		},
		status: 200, header: http.Header{"X-Outer": {"outer", "inner"}},
	},
	"without a field that others have set": {
		stored:  driver.SavedResult{Kind: driver.ResultValue, Codec: "http/1", Data: []byte("\x01\x00\xc8\x01\x01\aX-Outer\x01"), Summary: []byte("\x01\x00\xc8\x01\x01\aX-Outer\x01")},
		handler: func(w http.ResponseWriter, _ *http.Request) { w.Header().Del("X-Outer") },
		status:  200, header: http.Header{"X-Outer": nil},
	},
	"with trailers": {
		stored: driver.SavedResult{Kind: driver.ResultValue, Codec: "http/1", Data: []byte("\x01\x02\xc8\x01\x01\aTrailer\x02\x05X-Sumbody\x01\x05X-Sum\x02\x03714\x00\x00\x00\f"), Summary: []byte("\x01\x00\xc8\x01\x01\aTrailer\x02\x05X-Sum")},
		handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Trailer", "X-Sum")
			w.Write([]byte("body")) //nolint:errcheck // it is recorded
			w.Header().Set("X-Sum", "714")
		},
		status: 200, body: "body", trailer: http.Header{"X-Sum": {"714"}},
	},
	"that refuses": {
		stored:  driver.SavedResult{Kind: driver.ResultFailure, Codec: "failure/1", Data: []byte(`{"code":"http_402","detail":"AQCSAwEITG9jYXRpb24CCy9wYXltZW50cy8xbm8gZnVuZHM="}`), Summary: []byte("http_402")},
		handler: answers(http.StatusPaymentRequired, "no funds"),
		status:  402, header: http.Header{"Location": {"/payments/1"}}, body: "no funds",
	},
	"that is too large": {
		stored:  driver.SavedResult{Kind: driver.ResultElided, Codec: "http/1", Summary: []byte("\x01\x01\xc9\x01\x01\bLocation\x02\v/payments/1")},
		handler: answers(http.StatusCreated, "a large one"),
		opts:    &httponce.Options{Route: httponce.Route{MaxAnswer: 5}},
		status:  201, header: http.Header{"Location": {"/payments/1"}, "Idempotent-Replayed": {"elided"}},
	},
}

// An answer is kept in these bytes, and what was kept in them is replayed.
func TestFormatOfAnswers(t *testing.T) {
	for name, f := range formats {
		t.Run(name, func(t *testing.T) {
			written := memstore.New(nil)
			send(inOuter(t, written, f.opts, f.handler), "POST", "/payments", "{}", "Idempotency-Key", "k")
			sameResult(t, kept(t, written, keyOf("k")), f.stored)

			read := memstore.New(nil)
			keep(t, read, keyOf("k"), f.stored)
			res := send(inOuter(t, read, f.opts, never(t)), "POST", "/payments", "{}", "Idempotency-Key", "k")
			if body := bodyOf(t, res); res.StatusCode != f.status || body != f.body || res.Header["Idempotent-Replayed"] == nil {
				t.Errorf("%d %q %v, want %d %q", res.StatusCode, body, res.Header, f.status, f.body)
			}
			for name, values := range f.header {
				if got := res.Header[name]; !slices.Equal(got, values) {
					t.Errorf("%s: %q, want %q", name, got, values)
				}
			}
			if sum := res.Trailer["X-Sum"]; !slices.Equal(sum, f.trailer["X-Sum"]) {
				t.Errorf("the trailer is %q, want %q", sum, f.trailer["X-Sum"])
			}
		})
	}
}

// A large answer is the head, the beginning, and the location of the rest: random bits, its length, and the length of a
// piece.
func TestFormatOfAnswersInPieces(t *testing.T) {
	const head, piece = "\x01\x04\xc8\x01\x01\aX-Outer\x01", 256 << 10
	body := strings.Repeat("0123456789", piece/5+7)
	work := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Del("X-Outer")
		w.Write([]byte(body)) //nolint:errcheck // it is recorded
	}
	written := memstore.New(nil)
	send(inOuter(t, written, nil, work), "POST", "/payments", "{}", "Idempotency-Key", "k")
	data := string(kept(t, written, keyOf("k")).Data)
	first := len(data) - len(head) - (16 + 3 + 3 + 4) // how much of the body is in it
	if data[:len(head)] != head || data[len(head):len(head)+first] != body[:first] {
		t.Fatalf("the head is %q, or another beginning follows", data[:len(head)])
	}
	rest := body[first:]
	foot := string(binary.AppendUvarint(nil, uint64(len(rest)))) + "\x80\x80\x10" + "\x00\x00\x00\x16"
	if got := data[len(head)+first+16:]; got != foot {
		t.Fatalf("the foot is %q, want %q", got, foot)
	}
	for i, want := range []string{rest[:piece], rest[piece:]} {
		sameResult(t, kept(t, written, pieceOf(data[len(head)+first:][:16], i)), driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte(want)})
	}

	const set = "16 random bytes."
	read := memstore.New(nil)
	keep(t, read, keyOf("k"), driver.SavedResult{Kind: driver.ResultValue, Codec: "http/1", Data: []byte(head + "begin, " + set + "\x06\x04\x00\x00\x00\x12")})
	for i, text := range []string{"go o", "n!"} {
		keep(t, read, pieceOf(set, i), driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte(text)})
	}
	res := send(inOuter(t, read, nil, never(t)), "POST", "/payments", "{}", "Idempotency-Key", "k")
	if body := bodyOf(t, res); res.StatusCode != http.StatusOK || body != "begin, go on!" {
		t.Errorf("%d %q", res.StatusCode, body)
	}
}

func pieceOf(set string, i int) everonce.Key {
	return everonce.Key{Scope: "everybody/POST/%2Fpayments/answer", ID: hex.EncodeToString([]byte(set)) + "." + strconv.Itoa(i)}
}

// inOuter is a handler behind the middleware, in one that sets a field.
func inOuter(t *testing.T, store everonce.Store, opts *httponce.Options, work http.HandlerFunc) http.Handler {
	t.Helper()
	recv, err := everonce.NewReceiver(store, everonce.Refuse, nil)
	if err != nil {
		t.Fatal(err)
	}
	protect, err := httponce.Middleware(recv, httponce.Unscoped(), opts)
	if err != nil {
		t.Fatal(err)
	}
	protected := protect(work)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Outer", "outer")
		protected.ServeHTTP(w, r)
	})
}

func never(t *testing.T) http.HandlerFunc {
	return func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }
}

func kept(t *testing.T, s everonce.Store, key everonce.Key) driver.SavedResult {
	t.Helper()
	got, err := s.Get(t.Context(), driver.GetRequest{ID: key.RecordID()})
	if err != nil || !got.Found {
		t.Fatalf("%v: found %v, %v", key, got.Found, err)
	}
	return got.Record.Result
}

// keep leaves a record with a result.
func keep(t *testing.T, s everonce.Store, key everonce.Key, result driver.SavedResult) {
	t.Helper()
	req := driver.ClaimRequest{ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: driver.NewNonce(), Lease: time.Hour, Lifetime: everonce.ForWeb()}
	res, err := s.Claim(t.Context(), req)
	if err == nil {
		_, err = s.Complete(t.Context(), driver.CompleteRequest{ID: req.ID, Token: res.Record.Token, Nonce: req.Nonce, Result: result, Lifetime: req.Lifetime})
	}
	if err != nil {
		t.Fatal(err)
	}
}

func sameResult(t *testing.T, got, want driver.SavedResult) {
	t.Helper()
	if got.Kind != want.Kind || got.Codec != want.Codec || string(got.Data) != string(want.Data) || string(got.Summary) != string(want.Summary) {
		t.Errorf("it is stored as\n%v %q %q, summary %q\nand was\n%v %q %q, summary %q", got.Kind, got.Codec, got.Data, got.Summary, want.Kind, want.Codec, want.Data, want.Summary)
	}
}
