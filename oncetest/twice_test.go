package oncetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

type message struct {
	id   string
	tags []string
}

func TestTwiceFunc(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		name    string
		returns [2]error
		opts    *TwiceFuncOptions[*message]
		want    error
		fails   bool
	}{
		{"both done", [2]error{nil, nil}, nil, nil, false},
		{"both failed alike", [2]error{broken, errors.New("broken")}, nil, broken, false},
		{"the second is an error", [2]error{nil, broken}, nil, broken, true},
		{"the first was an error", [2]error{broken, nil}, nil, nil, true},
		{"another error", [2]error{broken, errors.New("broken again")}, nil, errors.New("broken again"), true},
		{"first wanted", [2]error{broken, nil}, &TwiceFuncOptions[*message]{Return: First}, broken, true},
		{"allowed", [2]error{broken, nil}, &TwiceFuncOptions[*message]{Same: func(error, error) error { return nil }}, nil, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got error
			var ids []string
			r := recorded(t, func(tb testing.TB) {
				f := TwiceFunc(tb, func(_ context.Context, m *message) error {
					ids = append(ids, m.id)
					return tc.returns[len(ids)-1]
				}, tc.opts)
				got = f(tb.Context(), &message{id: "m"})
			})
			if !slices.Equal(ids, []string{"m", "m"}) {
				t.Errorf("delivered %v", ids)
			}
			if fmt.Sprint(got) != fmt.Sprint(tc.want) || r.Failed() != tc.fails {
				t.Errorf("returned %v, failed %v: %s", got, r.Failed(), r.text())
			}
		})
	}
}

func TestTwiceFuncClones(t *testing.T) {
	clone := func(m *message) *message { return &message{m.id, slices.Clone(m.tags)} }
	f := TwiceFunc(t, func(_ context.Context, m *message) error {
		m.tags = append(m.tags, "seen")
		if len(m.tags) > 1 {
			return errors.New("seen before")
		}
		return nil
	}, &TwiceFuncOptions[*message]{Clone: clone})
	m := &message{id: "m"}
	if err := f(t.Context(), m); err != nil || len(m.tags) != 0 {
		t.Errorf("%v, %v", err, m.tags)
	}
}

func TestTwiceFuncEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	f := TwiceFunc(t, func(context.Context, int) error { n++; cancel(); return ctx.Err() }, nil)
	if err := f(ctx, 1); !errors.Is(err, context.Canceled) || n != 1 {
		t.Errorf("delivered %d times: %v", n, err)
	}
}

// shop is a handler whose two answers a test chooses.
type shop struct {
	arrived atomic.Int64
	bodies  []string
	serve   func(n int64, w http.ResponseWriter)
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	s.bodies = append(s.bodies, string(body)+r.Header.Get("Idempotency-Key")+r.Trailer.Get("Sum"))
	s.serve(s.arrived.Add(1), w)
}

var twiceCases = []struct {
	name  string
	serve func(n int64, w http.ResponseWriter)
	opts  *TwiceOptions
	body  string
	says  string // empty: the answers are equal
}{
	{"equal", func(_ int64, w http.ResponseWriter) {
		w.Header().Set("Location", "/orders/1")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, "order 1")
	}, nil, "order 1", ""},
	{"marked as replay", func(n int64, w http.ResponseWriter) {
		w.Header().Set("Date", fmt.Sprint(n))
		if n == 2 {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		fmt.Fprint(w, "order 1")
	}, nil, "order 1", ""},
	{"another body", func(n int64, w http.ResponseWriter) { fmt.Fprintf(w, "order %d", n) }, nil, "order 2", "bodies differ"},
	{"first wanted", func(n int64, w http.ResponseWriter) { fmt.Fprintf(w, "order %d", n) }, &TwiceOptions{Return: First}, "order 1", "bodies differ"},
	{"another status", func(n int64, w http.ResponseWriter) { w.WriteHeader(200 + int(n)) }, nil, "", "answered 201, and the second 202"},
	{"a lost header", func(n int64, w http.ResponseWriter) {
		if n == 1 {
			w.Header().Set("Location", "/orders/1")
		}
	}, nil, "", "header Location"},
	{"a header more", func(n int64, w http.ResponseWriter) {
		if n == 2 {
			w.Header().Set("X-Served", "2")
		}
	}, nil, "", "header X-Served"},
	{
		"a header that may", func(n int64, w http.ResponseWriter) { w.Header().Set("X-Served", fmt.Sprint(n)) },
		&TwiceOptions{Differs: []string{"date", "x-served"}}, "", "",
	},
	{"another trailer", func(n int64, w http.ResponseWriter) {
		w.Header().Set("Trailer", "Sum")
		fmt.Fprint(w, "order 1")
		w.Header().Set("Sum", fmt.Sprint(n))
	}, nil, "order 1", "trailer Sum"},
	{
		"compared otherwise", func(n int64, w http.ResponseWriter) { fmt.Fprintf(w, "order %d", n) },
		&TwiceOptions{Same: func(_, _ *http.Response, first, second []byte) error {
			if len(first) != len(second) {
				return errors.New("lengths")
			}
			return nil
		}}, "order 2", "",
	},
}

func TestTwiceTransport(t *testing.T) {
	for _, tc := range twiceCases {
		t.Run(tc.name, func(t *testing.T) {
			s := &shop{serve: tc.serve}
			server := httptest.NewServer(s)
			defer server.Close()
			r := recorded(t, func(tb testing.TB) {
				client := http.Client{Transport: TwiceTransport(tb, server.Client().Transport, tc.opts)}
				checkTwice(t, &client, server.URL, s, tc.body)
			})
			checkSaid(t, r, tc.says)
		})
	}
}

func TestTwiceHandler(t *testing.T) {
	for _, tc := range twiceCases {
		t.Run(tc.name, func(t *testing.T) {
			s := &shop{serve: tc.serve}
			r := recorded(t, func(tb testing.TB) {
				server := httptest.NewServer(TwiceHandler(tb, s, tc.opts))
				defer server.Close()
				checkTwice(t, server.Client(), server.URL, s, tc.body)
			})
			checkSaid(t, r, tc.says)
		})
	}
}

// checkTwice sends one request, with a trailer, and checks that it arrived twice, whole.
func checkTwice(t *testing.T, client *http.Client, url string, s *shop, want string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, io.NopCloser(strings.NewReader("one pound of tea/")))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Idempotency-Key", "k/")
	req.Trailer = http.Header{"Sum": {"s"}}
	res, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	body, err := io.ReadAll(res.Body)
	if err = errors.Join(err, res.Body.Close()); err != nil || string(body) != want {
		t.Errorf("answered %q (%v), want %q", body, err, want)
	}
	if !slices.Equal(s.bodies, []string{"one pound of tea/k/s", "one pound of tea/k/s"}) {
		t.Errorf("arrived: %q", s.bodies)
	}
	if req.Body == nil || req.Header.Get("Idempotency-Key") != "k/" {
		t.Error("the caller's request was changed")
	}
}

func checkSaid(t *testing.T, r *recorder, says string) {
	t.Helper()
	if r.Failed() != (says != "") || !strings.Contains(r.text(), says) {
		t.Errorf("failed %v, want %q: %s", r.Failed(), says, r.text())
	}
}

func TestTwiceOnly(t *testing.T) {
	s := &shop{serve: func(n int64, w http.ResponseWriter) { fmt.Fprint(w, n) }}
	posts := &TwiceOptions{Only: func(r *http.Request) bool { return r.Method == http.MethodPost }}
	rec := httptest.NewRecorder()
	TwiceHandler(t, s, posts).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/", nil))
	if s.arrived.Load() != 1 || rec.Body.String() != "1" {
		t.Errorf("arrived %d times, answered %s", s.arrived.Load(), rec.Body)
	}
	server := httptest.NewServer(s)
	defer server.Close()
	client := http.Client{Transport: TwiceTransport(t, http.DefaultTransport, posts)}
	res, err := client.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if s.arrived.Load() != 2 {
		t.Errorf("arrived %d times", s.arrived.Load())
	}
}

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTwiceTransportErrors(t *testing.T) {
	down := errors.New("down")
	for _, tc := range []struct {
		failsAt int
		err     error
		says    string
		sent    int
	}{{1, down, "", 1}, {2, nil, "the second not: down", 2}} {
		n := 0
		r := recorded(t, func(tb testing.TB) {
			rt := TwiceTransport(tb, tripper(func(*http.Request) (*http.Response, error) {
				if n++; n == tc.failsAt {
					return nil, down
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("ok"))}, nil
			}), nil)
			res, err := rt.RoundTrip(httptest.NewRequest(http.MethodGet, "/", nil))
			if !errors.Is(err, tc.err) || (res == nil) != (err != nil) {
				t.Errorf("%v, %v", res, err)
			}
			if res != nil {
				res.Body.Close()
			}
		})
		if n != tc.sent {
			t.Errorf("sent %d times", n)
		}
		checkSaid(t, r, tc.says)
	}
}

func TestTwiceUnreadableBody(t *testing.T) {
	s := &shop{serve: func(int64, http.ResponseWriter) { t.Error("served half a request") }}
	cut := func() io.ReadCloser { return io.NopCloser(io.MultiReader(strings.NewReader("half"), failing{})) }
	rec := httptest.NewRecorder()
	TwiceHandler(t, s, nil).ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", cut()))
	if rec.Code != http.StatusBadRequest {
		t.Errorf("answered %d", rec.Code)
	}
	rt := TwiceTransport(t, tripper(func(*http.Request) (*http.Response, error) {
		t.Error("sent half a request")
		return nil, io.ErrUnexpectedEOF
	}), nil)
	if res, err := rt.RoundTrip(httptest.NewRequest(http.MethodPost, "/", cut())); !errors.Is(err, io.ErrUnexpectedEOF) {
		res.Body.Close()
		t.Errorf("returned %v", err)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
