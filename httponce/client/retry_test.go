package client_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/everonce/everonce/httponce/client"
)

// first is a server that answers the first request with h and the others with 201, and counts requests.
func first(t *testing.T, h http.HandlerFunc) (url string, requests *atomic.Int32) {
	t.Helper()
	requests = new(atomic.Int32)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 1 {
			h(w, r)
			return
		}
		w.WriteHeader(http.StatusCreated)
	}))
	t.Cleanup(srv.Close)
	return srv.URL, requests
}

// Each bare error status: the statuses of DefaultRetryStatuses are retried, and no other.
func TestTransportStatuses(t *testing.T) {
	retried := []int{408, 425, 429, 502, 503, 504}
	if got := client.DefaultRetryStatuses(); !slices.Equal(got, retried) {
		t.Errorf("DefaultRetryStatuses returns %v", got)
	}
	for code := 200; code < 600; code++ {
		if http.StatusText(code) == "" {
			continue
		}
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			url, requests := first(t, func(w http.ResponseWriter, _ *http.Request) {
				if code != http.StatusConflict {
					w.Header().Set("Retry-After", "0") // makes a 409 pass, and nothing else
				}
				w.WriteHeader(code)
			})
			sender := over(t, nil, nil)
			resp, err := post(t, sender, url)
			want, status := int32(1), code
			if slices.Contains(retried, code) {
				want, status = 2, http.StatusCreated
			}
			wantAnswer(t, resp, err, status, "")
			if got := requests.Load(); got != want {
				t.Errorf("%d requests, want %d", got, want)
			}
		})
	}
}

func TestTransportStatusesAreChangeable(t *testing.T) {
	opts := &client.Options{RetryStatuses: append(client.DefaultRetryStatuses(), http.StatusInternalServerError)}
	url, requests := first(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) })
	resp, err := post(t, over(t, nil, opts), url)
	wantAnswer(t, resp, err, http.StatusCreated, "")
	if requests.Load() != 2 {
		t.Errorf("%d requests, want 2", requests.Load())
	}
	none := &client.Options{RetryStatuses: []int{}}
	url, requests = first(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	resp, err = post(t, over(t, nil, none), url)
	wantAnswer(t, resp, err, http.StatusServiceUnavailable, "")
	if requests.Load() != 1 {
		t.Errorf("%d requests, want 1", requests.Load())
	}
}

// A 409 is retried if it says that another attempt is running. It is left alone if it is the application's, or says
// that the outcome is unknown without a Retry-After. Its body can then be read.
func TestTransportConflicts(t *testing.T) {
	const base = "https://github.com/everonce/everonce/blob/main/docs/reference/problems/"
	for name, tc := range map[string]struct {
		media, body, retryAfter string
		retry                   bool
	}{
		"our problem":                    {media: "application/problem+json", body: `{"type":"` + base + `in-progress.md","title":"Läuft noch"}`, retry: true},
		"our problem at its own place":   {media: "application/problem+json; charset=utf-8", body: `{"type":"https://pay.example/problems/in-progress"}`, retry: true},
		"the draft's title":              {media: "application/problem+json", body: `{"type":"https://developer.example.com/idempotency","title":"A request is outstanding for this Idempotency-Key"}`, retry: true},
		"the draft's title, as typed":    {media: "application/problem+json", body: `{"title":"a request is outstanding for this idempotency-key"}`, retry: true},
		"in progress, as Spring says it": {media: "application/problem+json", body: `{"status":409,"error":"Conflict","title":"A request is outstanding for this Idempotency-Key"}`, retry: true},
		"in progress, with a number":     {media: "application/problem+json", body: `{"code":409,"status":"409","title":"A request is outstanding for this Idempotency-Key"}`, retry: true},
		"Retry-After":                    {media: "text/plain", body: "busy", retryAfter: "1", retry: true},
		"Retry-After, a problem":         {media: "application/problem+json", body: `{"title":"busy"}`, retryAfter: "1", retry: true},
		"Retry-After, no problem at all": {media: "application/problem+json", body: `{{`, retryAfter: "1", retry: true},
		"the application's":              {media: "application/json", body: `{"error":"seat taken"}`},
		"the application's problem":      {media: "application/problem+json", body: `{"type":"https://pay.example/problems/seat-taken","title":"Seat taken"}`},
		"a problem without a type":       {media: "application/problem+json", body: `{}`},
		"no problem":                     {media: "application/problem+json", body: `[1`},
		"in progress, but no problem":    {media: "application/json", body: `{"type":"` + base + `in-progress.md"}`},
		"the outcome is unknown":         {media: "application/problem+json", body: `{"type":"` + base + `outcome-unknown.md"}`},
		"unknown, and a retry asks":      {media: "application/problem+json", body: `{"type":"` + base + `outcome-unknown.md"}`, retryAfter: "1", retry: true},
		"a problem of another ending":    {media: "application/problem+json", body: `{"type":"https://pay.example/problems/not-in-progress"}`},
		"a large body":                   {media: "application/problem+json", body: fmt.Sprintf(`{"title":%0100000d}`, 1)},
		"nothing":                        {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if requests.Add(1) > 1 {
						w.WriteHeader(http.StatusCreated)
						return
					}
					if tc.media != "" {
						w.Header().Set("Content-Type", tc.media)
					}
					if tc.retryAfter != "" {
						w.Header().Set("Retry-After", tc.retryAfter)
					}
					w.WriteHeader(http.StatusConflict)
					_, _ = w.Write([]byte(tc.body))
				})
				resp, err := post(t, over(t, base, nil), "http://pay.example/")
				want := int32(1)
				if tc.retry {
					want = 2
					wantAnswer(t, resp, err, http.StatusCreated, "")
				} else {
					wantAnswer(t, resp, err, http.StatusConflict, tc.body)
				}
				if requests.Load() != want {
					t.Errorf("%d requests, want %d", requests.Load(), want)
				}
			})
		})
	}
}

// A caller who asks for a coding himself gets it, as net/http has it; a problem in gzip can be read all the same.
func TestTransportConflictsAreCompressed(t *testing.T) {
	const problem = `{"title":"A request is outstanding for this Idempotency-Key"}`
	for coding, tc := range map[string]struct {
		body string
		want int
	}{
		"gzip":     {packed(t, problem), http.StatusCreated},
		"GZIP":     {"no gzip", http.StatusConflict},
		"br":       {problem, http.StatusConflict},
		"identity": {problem, http.StatusCreated},
	} {
		var requests atomic.Int32
		base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			if requests.Add(1) > 1 {
				w.WriteHeader(http.StatusCreated)
				return
			}
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Content-Encoding", coding)
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(tc.body))
		})
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://pay.example/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", coding)
		resp, err := over(t, base, nil).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != tc.want || tc.want == http.StatusConflict && string(got) != tc.body {
			t.Errorf("%s: %d %q, want %d", coding, resp.StatusCode, got, tc.want)
		}
	}
}

// A saved answer is the same the next time: an answer marked as replayed is final.
func TestTransportReplayedAnswersAreFinal(t *testing.T) {
	for _, code := range []int{429, 500, 503} {
		for configured, marker := range map[string]string{"": "Idempotent-Replayed", "x-was-REPLAYED": "X-Was-Replayed"} {
			url, requests := first(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set(marker, "true")
				w.WriteHeader(code)
			})
			resp, err := post(t, over(t, nil, &client.Options{Marker: configured}), url)
			wantAnswer(t, resp, err, code, "")
			if requests.Load() != 1 {
				t.Errorf("%d: %d requests, want 1", code, requests.Load())
			}
		}
	}
}

// A marker that says no marks nothing.
func TestTransportMarkerThatSaysNo(t *testing.T) {
	for _, no := range []string{"", "false", "False", "?0"} {
		url, requests := first(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Idempotent-Replayed", no)
			w.WriteHeader(http.StatusServiceUnavailable)
		})
		resp, err := post(t, over(t, nil, nil), url)
		wantAnswer(t, resp, err, http.StatusCreated, "")
		if requests.Load() != 2 {
			t.Errorf("%q: %d requests, want 2", no, requests.Load())
		}
	}
}

// RetryIf decides, both ways, and gets the default decision.
func TestTransportRetryIf(t *testing.T) {
	errBroken := errors.New("broken")
	for name, tc := range map[string]struct {
		status int
		fault  error
		say    bool
		would  bool
	}{
		"yes to a 500":         {status: 500, say: true},
		"no to a 503":          {status: 503, say: false, would: true},
		"no to an error":       {fault: errBroken, say: false, would: true},
		"yes to a certificate": {fault: http.ErrSchemeMismatch, say: true},
	} {
		t.Run(name, func(t *testing.T) {
			requests := 0
			base := roundTrip(func(r *http.Request) (*http.Response, error) {
				requests++
				_ = r.Body.Close()
				if requests > 1 {
					return &http.Response{StatusCode: http.StatusCreated, Body: http.NoBody, Request: r}, nil
				}
				if tc.fault != nil {
					return nil, tc.fault
				}
				return &http.Response{StatusCode: tc.status, Body: http.NoBody, Request: r}, nil
			})
			asked := 0
			sender := over(t, base, &client.Options{RetryIf: func(resp *http.Response, err error, retry bool) bool {
				if resp != nil && resp.StatusCode == http.StatusCreated {
					return retry
				}
				asked++
				if retry != tc.would || (resp == nil) == (err == nil) || !errors.Is(err, tc.fault) {
					t.Errorf("RetryIf got %v, %v, %v", resp, err, retry)
				}
				return tc.say
			}})
			resp, err := post(t, sender, "http://pay.example/")
			switch {
			case tc.say:
				wantAnswer(t, resp, err, http.StatusCreated, "")
			case tc.fault != nil:
				wantError(t, resp, err, 1)
			default:
				wantAnswer(t, resp, err, tc.status, "")
			}
			if want := map[bool]int{true: 2, false: 1}[tc.say]; requests != want || asked != 1 {
				t.Errorf("%d requests, want %d; RetryIf was asked %d times", requests, want, asked)
			}
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A base that keeps to no contract makes no panic.
func TestTransportBaseThatReturnsNothing(t *testing.T) {
	sender := over(t, roundTrip(func(*http.Request) (*http.Response, error) { return nil, nil }), &client.Options{MaxAttempts: 2})
	resp, err := post(t, sender, "http://pay.example/")
	wantError(t, resp, err, 2)
}

// The server's time is obeyed, in seconds and as a date, with up to Backoff on top.
func TestTransportObeysRetryAfter(t *testing.T) {
	for name, retryAfter := range map[string]func() string{
		"seconds": func() string { return "7" },
		"a date":  func() string { return time.Now().Add(7 * time.Second).UTC().Format(http.TimeFormat) },
	} {
		for _, status := range []int{409, 429, 503} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var at []time.Time
					base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
						at = append(at, time.Now())
						if len(at) == 1 {
							w.Header().Set("Retry-After", retryAfter())
							w.WriteHeader(status)
						}
					})
					resp, err := post(t, over(t, base, &client.Options{Backoff: time.Second}), "http://pay.example/")
					wantAnswer(t, resp, err, http.StatusOK, "")
					if waited := at[1].Sub(at[0]); waited < 7*time.Second || waited > 8*time.Second {
						t.Errorf("waited %v", waited)
					}
				})
			})
		}
	}
}

// If a pause would outlast a limit, the answer is returned at once, with its body.
func TestTransportLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		opts        client.Options
		deadline    time.Duration
		retryAfter  string
		requests    int32
		least, most time.Duration
	}{
		"attempts":                        {opts: client.Options{MaxAttempts: 3}, retryAfter: "1", requests: 3, least: 2 * time.Second, most: 2 * time.Second},
		"a single attempt":                {opts: client.Options{MaxAttempts: 1}, retryAfter: "1", requests: 1},
		"the default":                     {retryAfter: "1", requests: 10, least: 9 * time.Second, most: 9 * time.Second},
		"the time":                        {opts: client.Options{MaxElapsed: 3500 * time.Millisecond}, retryAfter: "1", requests: 4, least: 3 * time.Second, most: 3 * time.Second},
		"no time":                         {opts: client.Options{MaxElapsed: -1, MaxAttempts: 4}, retryAfter: "86400", requests: 4, least: 72 * time.Hour, most: 72 * time.Hour},
		"Retry-After beyond the time":     {retryAfter: "3600", requests: 1},
		"Retry-After beyond all time":     {opts: client.Options{MaxElapsed: -1, AttemptTimeout: -1}, deadline: time.Hour, retryAfter: "99999999999999", requests: 1},
		"Retry-After beyond the deadline": {deadline: 5 * time.Second, retryAfter: "6", requests: 1},
		"the deadline":                    {deadline: 5 * time.Second, retryAfter: "2", requests: 3, least: 4 * time.Second, most: 4 * time.Second},
		"the backoff":                     {opts: client.Options{Backoff: time.Second, MaxBackoff: 4 * time.Second, MaxAttempts: 5}, requests: 5, most: 11 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var requests atomic.Int32
				base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					requests.Add(1)
					if tc.retryAfter != "" {
						w.Header().Set("Retry-After", tc.retryAfter)
					}
					w.WriteHeader(http.StatusServiceUnavailable)
					_, _ = w.Write([]byte("not now"))
				})
				ctx := t.Context()
				if tc.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.deadline)
					defer cancel()
				}
				begun := time.Now()
				resp, err := postWith(ctx, over(t, base, &tc.opts), "http://pay.example/")
				wantAnswer(t, resp, err, http.StatusServiceUnavailable, "not now")
				if took := time.Since(begun); took < tc.least || took > tc.most+time.Microsecond {
					t.Errorf("it took %v, want %v to %v", took, tc.least, tc.most)
				}
				if requests.Load() != tc.requests {
					t.Errorf("%d requests, want %d", requests.Load(), tc.requests)
				}
			})
		})
	}
}

// MaxElapsed ends an attempt that is under way, too.
func TestTransportMaxElapsedEndsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		defer close(hang)
		base, _ := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
		begun := time.Now()
		resp, err := post(t, over(t, base, &client.Options{MaxElapsed: 70 * time.Second}), "http://pay.example/")
		retry := wantError(t, resp, err, 3) // two of 30 s, and one of the rest
		if took := time.Since(begun); took != 70*time.Second || retry.Elapsed != took || !retry.Timeout() || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it took %v and ended with %v", took, err)
		}
	})
}

// OnRetry is called for each attempt that is followed by another, and for no other.
func TestTransportOnRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		statuses := []int{503, 429, 201}
		n := 0
		base, _ := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", strconv.Itoa(n+2))
			w.WriteHeader(statuses[n])
			n++
		})
		var told []string
		resp, err := post(t, over(t, base, &client.Options{OnRetry: func(ctx context.Context, r client.Retry) {
			told = append(told, fmt.Sprint(r.Attempt, " ", r.Status, " ", r.Err, " ", r.Pause.Truncate(time.Second), " ", r.Request.Method, " ", ctx.Err()))
			if len(r.Request.Header["Idempotency-Key"]) > 0 { // an attempt's header has one
				t.Error("OnRetry got another request than the caller's")
			}
		}}), "http://pay.example/")
		wantAnswer(t, resp, err, http.StatusCreated, "")
		if want := []string{"1 503 <nil> 2s POST <nil>", "2 429 <nil> 3s POST <nil>"}; !slices.Equal(told, want) {
			t.Errorf("OnRetry got %q, want %q", told, want)
		}
	})
}

// A RetryError is a timeout where the error that it is about says so, and not for having been one of the network.
func TestTransportRetryErrorIsATimeoutWhereItSaysSo(t *testing.T) {
	for err, want := range map[error]bool{
		&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}: true, context.DeadlineExceeded: true,
		&net.OpError{Op: "read", Err: syscall.ECONNRESET}: false, io.ErrUnexpectedEOF: false,
	} {
		if got := (&client.RetryError{Attempts: 1, Err: err}).Timeout(); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

// The pauses of an operation are drawn from a bound that doubles with each attempt, and stays at MaxBackoff.
func TestTransportPausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		var longest [6]time.Duration
		sender := over(t, base, &client.Options{
			MaxAttempts: len(longest) + 1, Backoff: 100 * time.Millisecond, MaxBackoff: time.Second,
			OnRetry: func(_ context.Context, r client.Retry) { longest[r.Attempt-1] = max(longest[r.Attempt-1], r.Pause) },
		})
		for range 200 {
			resp, err := post(t, sender, "http://pay.example/")
			wantError(t, resp, err, len(longest)+1)
		}
		bound := 100 * time.Millisecond
		for i, got := range longest {
			if got > bound || got < bound*6/10 {
				t.Errorf("after attempt %d the longest pause was %v, want it near %v", i+1, got, bound)
			}
			bound = min(2*bound, time.Second)
		}
	})
}

// packed compresses a text by gzip.
func packed(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
