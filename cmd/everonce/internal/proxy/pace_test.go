package proxy

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A service that takes its time is no client that stalls: not before its answer, not in it, and not while it reads a
// body.
func TestProxySlowServiceIsNoSlowClient(t *testing.T) {
	const stall, slow = "--stall=500ms", 1200 * time.Millisecond
	cert, key := writePair(t, t.TempDir(), "proxy")
	large := strings.Repeat("0123456789abcdef", 64<<10) // 1 MiB: more than the buffers on its way hold
	service := func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.ReadFull(r.Body, make([]byte, 10)); err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		<-time.After(slow)
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			t.Errorf("%s: %v", r.URL, err)
		}
		<-time.After(slow)
		w.Header().Set("Content-Type", "text/event-stream")
		for range 2 {
			io.WriteString(w, "data: 1\n\n")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Errorf("%s: %v", r.URL, err)
			}
			<-time.After(slow)
		}
	}
	for name, args := range map[string][]string{"HTTP/1.1": {stall}, "HTTP/2.0": {stall, "--tls-cert=" + cert, "--tls-key=" + key}} {
		p := start(t, service, args...)
		for _, idempotencyKey := range []string{"", "k"} {
			t.Run(name+" key "+idempotencyKey, func(t *testing.T) {
				t.Parallel()
				tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
				t.Cleanup(tr.CloseIdleConnections)
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/", struct{ io.Reader }{strings.NewReader(large)})
				if err != nil {
					t.Fatal(err)
				}
				if idempotencyKey != "" {
					r.Header.Set("Idempotency-Key", idempotencyKey)
				}
				res, err := (&http.Client{Transport: tr}).Do(r)
				if err != nil {
					t.Fatal(err)
				}
				defer res.Body.Close()
				if body, err := io.ReadAll(res.Body); err != nil || res.Proto != name || res.StatusCode != http.StatusOK || string(body) != "data: 1\n\ndata: 1\n\n" {
					t.Errorf("%s %d %q, %v", res.Proto, res.StatusCode, body, err)
				}
			})
		}
	}
}

// ended is a ResponseWriter that notes deadlines, and may be the server's again: net/http panics where HTTP/2's is
// asked for something then.
type ended struct {
	http.ResponseWriter
	over   bool
	set    []time.Time
	writes []time.Time
}

func (e *ended) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (e *ended) SetWriteDeadline(at time.Time) error {
	e.writes = append(e.writes, at)
	return nil
}

func (e *ended) SetReadDeadline(at time.Time) error {
	if e.over {
		panic("the handler has returned")
	}
	e.set = append(e.set, at)
	return nil
}

// A service may answer before it has read the body, and the body is still on its way when the answer has been passed
// on: nothing is done then to a connection that is not this request's any more. In mid-body each read has its own time.
func TestProxyBodyOutlivesItsHandler(t *testing.T) {
	for major, want := range map[int]int{1: 2, 2: 4} { // two reads; the end over HTTP/1.1; none of the time between two over HTTP/2
		w := &ended{ResponseWriter: httptest.NewRecorder()}
		var body io.ReadCloser
		paced(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body = r.Body
			for range 2 {
				if _, err := body.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
			}
		}), time.Nanosecond).ServeHTTP(w, &http.Request{ProtoMajor: major, Body: io.NopCloser(strings.NewReader("body"))})
		if w.over = true; major == 1 {
			want++
		}
		if text, err := io.ReadAll(body); string(text) != "dy" || err != nil {
			t.Errorf("HTTP/%d: %q, %v", major, text, err)
		}
		if len(w.set) != want || major == 2 && (!w.set[1].IsZero() || !w.set[3].IsZero()) {
			t.Errorf("HTTP/%d: %d deadlines were set: %v", major, len(w.set), w.set)
		}
	}
}

// A client that has sent its whole body waits for the answer as long as it takes: no deadline remains, and a read
// behind the end, as net/http's client does, sets none.
func TestProxyBodyThatIsThereHasNoDeadline(t *testing.T) {
	for _, major := range []int{1, 2} {
		w := &ended{ResponseWriter: httptest.NewRecorder()}
		paced(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for range 2 {
				if _, err := io.Copy(io.Discard, r.Body); err != nil {
					t.Error(err)
				}
				if last := w.set[len(w.set)-1]; !last.IsZero() {
					t.Errorf("HTTP/%d: %v is left of %v", major, last, w.set)
				}
			}
		}), time.Nanosecond).ServeHTTP(w, &http.Request{ProtoMajor: major, Body: io.NopCloser(strings.NewReader("body"))})
	}
}

// Before anything of an answer is written there is a deadline, for net/http itself writes "100 Continue"; but none over
// HTTP/2, where it would end the stream of who waits.
func TestPacedWriterBoundsWhatComesBeforeTheAnswer(t *testing.T) {
	for major, want := range map[int]int{1: 1, 2: 0} {
		w := &ended{ResponseWriter: httptest.NewRecorder()}
		newPacedWriter(w, &http.Request{ProtoMajor: major}, time.Hour)
		if len(w.writes) != want {
			t.Errorf("HTTP/%d: %v, want %d deadlines", major, w.writes, want)
		}
	}
}

// All that is written has its own time, a status below 200 and each piece of a large body too; and over HTTP/2 none of
// it is left behind, so that the stream outlives a service that is silent for longer.
func TestPacedWriterGivesEveryWriteItsTime(t *testing.T) {
	large := strings.Repeat("x", 3*pieceSize)
	for name, tc := range map[string]struct {
		write func(p *pacedWriter) error
		times int
	}{
		"early hints": {func(p *pacedWriter) error { p.WriteHeader(http.StatusEarlyHints); return nil }, 1},
		"a body":      {func(p *pacedWriter) error { _, err := io.WriteString(p, large); return err }, 3},
		"a flush":     {func(p *pacedWriter) error { return p.FlushError() }, 1},
	} {
		for major, behind := range map[int]int{1: 0, 2: 1} {
			w := &ended{ResponseWriter: httptest.NewRecorder()}
			p := newPacedWriter(w, &http.Request{ProtoMajor: major}, 0)
			p.status, w.writes = http.StatusOK, nil // the head is written
			if err := tc.write(p); err != nil {
				t.Error(err)
			}
			if len(w.writes) != tc.times+behind || w.writes[0].IsZero() || w.writes[len(w.writes)-1].IsZero() != (behind > 0) {
				t.Errorf("HTTP/%d, %s: %v", major, name, w.writes)
			}
			if name == "a body" && p.bytes != int64(len(large)) {
				t.Errorf("%d bytes are reported, want %d", p.bytes, len(large))
			}
		}
	}
}

// The reported status is the answer's: no one below 200, and none that came too late.
func TestPacedWriterTellsTheStatusOfTheAnswer(t *testing.T) {
	w := newPacedWriter(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil), time.Hour)
	for _, status := range []int{http.StatusEarlyHints, http.StatusCreated, http.StatusInternalServerError} {
		w.WriteHeader(status)
	}
	if w.status != http.StatusCreated {
		t.Errorf("reported %d, want %d", w.status, http.StatusCreated)
	}
}

// Over HTTP/2 a client that stops in the middle loses its stream: one that sends no more of a body, with a key or
// without, and one that takes no more of an answer.
func TestProxyCutsOffSlowStreams(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		io.Copy(w, &flood{left: 64 << 20, peak: &peak{}})
	}, "--stall=100ms", "--body-timeout=100ms", "--tls-cert="+cert, "--tls-key="+key)
	for _, idempotencyKey := range []string{"", "k"} {
		for _, what := range []string{"half of a body", "an answer that is not read"} {
			t.Run(what+" key "+idempotencyKey, func(t *testing.T) {
				tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
				t.Cleanup(tr.CloseIdleConnections)
				half, rest := io.Pipe()
				t.Cleanup(func() { rest.Close() })
				var body io.Reader = http.NoBody
				path := "/answer" + idempotencyKey
				if what == "half of a body" {
					body, path = half, "/body"+idempotencyKey
				}
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+path, body)
				if err != nil {
					t.Fatal(err)
				}
				if idempotencyKey != "" {
					r.Header.Set("Idempotency-Key", idempotencyKey)
				}
				res, err := (&http.Client{Transport: tr}).Do(r)
				if what == "half of a body" {
					if err == nil {
						res.Body.Close()
					}
					if err == nil && res.StatusCode < 400 {
						t.Errorf("answered %d", res.StatusCode)
					}
					return
				}
				if err != nil || res.ProtoMajor != 2 {
					t.Fatalf("%v, %v", res, err)
				}
				defer res.Body.Close()
				for !strings.Contains(p.log.String(), `"path":"`+path+`","status":200`) { // it gives up on its own
					runtime.Gosched()
				}
				if n, err := io.Copy(io.Discard, res.Body); err == nil || n >= 64<<20 {
					t.Errorf("%d bytes, %v", n, err)
				}
			})
		}
	}
}
