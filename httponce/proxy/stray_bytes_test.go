package proxy_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/everonce/everonce/httponce/proxy"
)

// Bytes left on a connection after an answer are not the answer to the next request on it, and are not saved as such:
// somebody else may have made the service send them. net/http checks for them when the connection is free again; here
// the next request has the connection by then.
func TestProxyTakesNothingLeftOverForAnAnswer(t *testing.T) {
	const leftOver = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	body := strings.Repeat("x", 8<<10) // more than net/http holds back: WroteRequest comes before the last of it is written
	for name, answer := range map[string]string{
		"behind no content": "HTTP/1.1 204 No Content\r\n\r\n",
		"behind its length": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
		"behind its chunks": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return answer + leftOver, false })
			proxy, err := proxy.New(u.url, &proxy.Options{Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			h := protected(t, nil, proxy.ServeHTTP)
			pay := func(key string, trace *httptrace.ClientTrace) *http.Response {
				w := httptest.NewRecorder()
				r := httptest.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, "/", strings.NewReader(body))
				r.Header.Set("Idempotency-Key", key)
				h.ServeHTTP(w, r)
				return w.Result()
			}
			next := make(chan *http.Response, 1)
			pay("first", &httptrace.ClientTrace{PutIdleConn: func(error) { // it is free, and not looked at yet
				sent := make(chan struct{})
				go func() {
					next <- pay("next", &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { close(sent) }})
				}()
				<-sent
			}})
			for i, want := range []string{"upstream-lost", "outcome-unknown"} {
				res := <-next
				text, err := io.ReadAll(res.Body)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(string(text), want) {
					t.Errorf("answer %d: %d %s, want %s", i+1, res.StatusCode, text, want)
				}
				next <- pay("next", &httptrace.ClientTrace{})
			}
		})
	}
}
