package proxy_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/everonce/everonce/httponce/proxy"
)

// net/http quotes in its errors what it cannot read: a line of the answer, or the rest of somebody else's. No log
// repeats it.
func TestProxyQuotesNoAnswerInTheLog(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\n"
	for name, answer := range map[string]string{
		"a body where the answer begins": `{"card":"secret"}` + "\r\n\r\n",
		"a status":                       "HTTP/1.1 secret OK\r\n\r\n",
		"a version":                      "HTTP/secret 200 OK\r\n\r\n",
		"a header without a colon":       head + "Set-Cookie sid=\"secret\\\"\r\n\r\n",
		"a folded line":                  head + " secret\r\n\r\n",
		"an encoding":                    head + "Transfer-Encoding: secret\r\n\r\n",
		"lengths":                        head + "Content-Length: 1\r\nContent-Length: 2secret\r\n\r\n",
		"a trailer without a colon":      head + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nsecret\r\n\r\n",
		"another protocol":               "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: secret\r\n\r\n",
	} {
		for _, key := range []string{"", "k"} {
			u := newWireUpstream(t, func(int, wireRequest) (string, bool) { return answer, true })
			var logs bytes.Buffer
			srv := newProxy(t, u.url, nil, &proxy.Options{Log: slog.New(slog.NewJSONHandler(&logs, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			if key != "" {
				r.Header.Set("Idempotency-Key", key)
			}
			if res, err := srv.Client().Do(r); err == nil { // what flows is cut off where the answer ends
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
			}
			srv.Close() // and waits for who writes to the log
			if got := logs.String(); !strings.Contains(got, `"error":`) && !strings.Contains(got, "ReverseProxy") || strings.Contains(got, "secret") {
				t.Errorf("%s, key %q: logged was %s", name, key, got)
			}
		}
	}
}
