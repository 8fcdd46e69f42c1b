package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce"
)

// line is one of the log.
type line struct {
	Level, Msg, Key, Problem, Outcome, Method, Path, Client, Proto string
	Status                                                         int
	Bytes, Took                                                    int64
}

// logged returns the lines of the log that say msg, and those that do so raw.
func (p *proxied) logged(t *testing.T, msg string) (lines []line, raw []string) {
	t.Helper()
	for text := range strings.Lines(p.log.String()) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if strings.Contains(l.Msg, msg) {
			lines, raw = append(lines, l), append(raw, text)
		}
	}
	return lines, raw
}

// If the upstream does not answer, the access log line and an error line both name the hash of the key, and a counter
// counts it.
func TestAccessOfAnUpstreamThatIsDown(t *testing.T) {
	p := startBefore(t, "http://127.0.0.1:1")
	if res, body := send(t, "POST", p.url+"/", "", "Idempotency-Key", "secret-key"); res.StatusCode != http.StatusBadGateway {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
	why, _ := p.logged(t, "the upstream gave no answer")
	requests, _ := p.logged(t, "request")
	if len(why) != 1 || len(requests) != 1 {
		t.Fatalf("the log is %s", p.log.String())
	}
	if why[0].Level != "WARN" || why[0].Method != http.MethodPost || why[0].Path != "/" || why[0].Problem != "upstream-unreachable" {
		t.Errorf("the reason is %+v", why[0])
	}
	if why[0].Key == "" || why[0].Key != requests[0].Key || strings.Contains(p.log.String(), "secret-key") {
		t.Errorf("the keys are %q and %q", why[0].Key, requests[0].Key)
	}
	if requests[0].Problem != "upstream-unreachable" || requests[0].Outcome != "failed" {
		t.Errorf("the request is %+v", requests[0])
	}
	const counted = `everonce_http_problems_total{http_route="other",problem="upstream-unreachable"} 1`
	if _, text := send(t, "GET", p.admin+"/metrics", ""); !strings.Contains(text, "\n"+counted+"\n") {
		t.Errorf("/metrics has no line %s", counted)
	}
}

// The log has the status and the size of an answer, and of an upgraded connection that it was one.
func TestAccessOfAnAnswer(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			c.Close()
			return
		}
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "done")
	})
	send(t, "POST", p.url+"/pay?card=1", "")
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET /socket HTTP/1.1\r\nHost: service.test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if _, err := io.Copy(io.Discard, c); err != nil { // the service ends it
		t.Fatal(err)
	}
	for !strings.Contains(p.log.String(), "/socket") {
		runtime.Gosched()
	}
	requests, _ := p.logged(t, "request")
	for i, want := range []line{
		{Level: "INFO", Msg: "request", Method: "POST", Path: "/pay", Client: "127.0.0.1", Proto: "HTTP/1.1", Status: 201, Bytes: 4},
		{Level: "INFO", Msg: "request", Method: "GET", Path: "/socket", Client: "127.0.0.1", Proto: "HTTP/1.1", Status: 101},
	} {
		if took := requests[i].Took; took <= 0 {
			t.Errorf("it took %d", took)
		}
		if want.Took = requests[i].Took; requests[i] != want {
			t.Errorf("logged was %+v, want %+v", requests[i], want)
		}
	}
}

// A repetition that waited for the first request says in its line for how long.
func TestAccessOfAWait(t *testing.T) {
	p := &proxied{log: &buffer{}}
	p.Server = newServer(configOf(t), slog.New(slog.NewJSONHandler(p.log, nil)))
	p.front(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p.observe(r.Context(), httponce.Served{Route: "/", KeyHash: "k", Outcome: everonce.Replayed, Waited: 2 * time.Second})
	})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", http.NoBody))
	if _, raw := p.logged(t, "request"); len(raw) != 1 || !strings.Contains(raw[0], `"route":"other","outcome":"replayed","key":"k","waited":2000000000}`) {
		t.Errorf("the log has %v", raw)
	}
}

// A request that is refused before its key counts has no record, and its line no key.
func TestAccessOfRefusedRequests(t *testing.T) {
	p := start(t, (&counting{}).ServeHTTP, "--required", "--max-body=1KiB")
	send(t, "POST", p.url+"/", "")
	send(t, "POST", p.url+"/", "", "Idempotency-Key", "a,b")
	send(t, "POST", p.url+"/", strings.Repeat("x", 1025), "Idempotency-Key", "k")
	requests, raw := p.logged(t, "request")
	for i, want := range []string{"missing-key", "invalid-key", "body-too-large"} {
		if r := requests[i]; r.Problem != want || r.Outcome != "refused" || strings.Contains(raw[i], `"key"`) {
			t.Errorf("%s: %s", want, raw[i])
		}
	}
	_, text := send(t, "GET", p.admin+"/metrics", "")
	if !strings.Contains(text, "\n"+`everonce_http_requests_total{http_response_status_code="400",http_route="other",outcome="refused"} 2`+"\n") || strings.Contains(text, "\neveronce_proxy_unkeyed_requests_total") {
		t.Errorf("they are not counted as requests with a key: %s", text)
	}
}

// A store that forgets its records causes one loud warning; a durable store causes none.
func TestMemoryIsWarnedOf(t *testing.T) {
	for store, want := range map[string]int{"memory:": 1, "sqlite:" + filepath.Join(t.TempDir(), "proxy.db"): 0} {
		p := start(t, (&counting{}).ServeHTTP, "--store="+store)
		for _, key := range []string{"a", "b"} {
			send(t, "POST", p.url+"/", "", "Idempotency-Key", key)
		}
		lines, raw := p.logged(t, "THE RECORDS ARE IN MEMORY")
		if len(lines) != want || want == 1 && lines[0].Level != "WARN" {
			t.Errorf("%s: %v", store, raw)
		}
	}
}

// An empty store was never used, or differs from the previous one. The start warns about it, because every repetition
// is new to such a store.
func TestAnEmptyStoreIsWarnedOf(t *testing.T) {
	store := "--store=sqlite:" + filepath.Join(t.TempDir(), "proxy.db")
	for i, want := range []int{1, 1, 0} { // the first two starts find nothing
		p := start(t, (&counting{}).ServeHTTP, store)
		if i == 1 {
			send(t, "POST", p.url+"/", "", "Idempotency-Key", "a")
		}
		p.stop()
		<-p.ended
		if lines, raw := p.logged(t, "the store has no records"); len(lines) != want || want == 1 && lines[0].Level != "WARN" {
			t.Errorf("start %d: %v, want %d warnings", i, raw, want)
		}
	}
}

// An answer that breaks off is cut off for the client too, be it counted or in chunks: an end that looked whole would
// be taken for one.
func TestAnAnswerThatBreaksOffIsCutOff(t *testing.T) {
	p := start(t, func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	res, err := http.Get(p.url + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); string(text) != "half" || err == nil {
		t.Errorf("the client read %q, %v", text, err)
	}
	p.stop()
	<-p.ended
	if _, raw := p.logged(t, "request"); len(raw) != 1 || !strings.Contains(raw[0], `"aborted":true`) {
		t.Errorf("the log has %v", raw)
	}
}

// This is no tunnel to wherever a client names; and a proxy that is told to keep no access log keeps none.
func TestConnectIsRefused(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP, "--access-log=false")
	c, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "CONNECT bank.example:443 HTTP/1.1\r\nHost: bank.example:443\r\n\r\n")
	text, err := io.ReadAll(c) // it is closed then
	if err != nil || !strings.HasPrefix(string(text), "HTTP/1.1 501 ") || service.count() != 0 {
		t.Errorf("%q, %v, %d calls", text, err, service.count())
	}
	if lines, raw := p.logged(t, "request"); len(lines) > 0 {
		t.Errorf("the log has %v", raw)
	}
}

// To some services "post" is POST: what they do would be protected by no method of a route. fetch() sends such a
// "patch".
func TestMethodsInSmallLettersAreRefused(t *testing.T) {
	service := &counting{}
	p := start(t, service.ServeHTTP, "--required")
	for _, method := range []string{"post", "patch", "Post", "pOST"} {
		if res, _ := send(t, method, p.url+"/", "x", "Idempotency-Key", "k"); res.StatusCode != http.StatusNotImplemented || service.count() != 0 {
			t.Errorf("%s: %d, %d calls", method, res.StatusCode, service.count())
		}
	}
	if res, _ := send(t, "M-SEARCH", p.url+"/", ""); res.StatusCode != http.StatusCreated || service.count() != 1 {
		t.Errorf("M-SEARCH: %d, %d calls", res.StatusCode, service.count())
	}
}

// Behind another proxy the log says for whom it sends a request, and only where that proxy is trusted.
func TestAccessForwardedFor(t *testing.T) {
	long := strings.Repeat("192.0.2.1, ", 100) + "192.0.2.9"
	for _, trusted := range []bool{true, false} {
		p := start(t, (&counting{}).ServeHTTP, fmt.Sprint("--trust-forwarded=", trusted))
		send(t, "POST", p.url+"/", "", "X-Forwarded-For", "192.0.2.7", "X-Forwarded-For", "192.0.2.8")
		send(t, "POST", p.url+"/", "", "X-Forwarded-For", long)
		send(t, "POST", p.url+"/", "")
		_, raw := p.logged(t, "request")
		for i, want := range []string{"192.0.2.7, 192.0.2.8", long[len(long)-256:], ""} {
			var got struct {
				ForwardedFor string `json:"forwarded_for"`
			}
			if err := json.Unmarshal([]byte(raw[i]), &got); err != nil {
				t.Fatal(err)
			}
			if !trusted {
				want = ""
			}
			if got.ForwardedFor != want || want == "" && strings.Contains(raw[i], "forwarded_for") {
				t.Errorf("trusted: %v: the log says %q, want %q", trusted, got.ForwardedFor, want)
			}
		}
	}
}
