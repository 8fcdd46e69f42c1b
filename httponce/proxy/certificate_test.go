package proxy_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/everonce/everonce/httponce/proxy"
)

// An upstream that refuses the proxy's certificate, because it has expired perhaps, has processed nothing. In TLS 1.3
// it says so when requests were written already, several over HTTP/2: whichever hears of it leaves its key free.
// Without that word, as where the connection's end comes before it, the outcome is unknown.
func TestProxyReleasesWhatRefusesItsCertificate(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, presented := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP2 %v, certificate %v", http2, presented), func(t *testing.T) {
				t.Parallel()
				var calls atomic.Int32
				up := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { calls.Add(1) }))
				up.EnableHTTP2 = http2
				up.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
				up.Config.ErrorLog = quiet
				up.StartTLS()
				t.Cleanup(up.Close)
				roots := x509.NewCertPool()
				roots.AddCert(up.Certificate())
				conf := &tls.Config{RootCAs: roots}
				if presented {
					conf.Certificates = up.TLS.Certificates
				}
				u, err := url.Parse(up.URL)
				if err != nil {
					t.Fatal(err)
				}
				var logs bytes.Buffer
				srv := newProxy(t, u, nil, &proxy.Options{TLS: conf, Log: slog.New(slog.NewJSONHandler(&logs, nil))})
				var clients sync.WaitGroup
				for c := range 5 {
					clients.Go(func() {
						for i := range 10 {
							if status, _, body := post(t, srv, "/", fmt.Sprint(c, "-", i), "amount=1"); status != http.StatusBadGateway {
								t.Errorf("%d %s, want 502", status, body)
							}
						}
					})
				}
				clients.Wait()
				heard := 0
				for line := range strings.Lines(logs.String()) {
					var told struct{ Problem, Error string }
					if err := json.Unmarshal([]byte(line), &told); err != nil {
						t.Fatal(err)
					}
					if !strings.Contains(told.Error, "remote error: tls: ") {
						continue
					}
					if heard++; told.Problem != "upstream-unreachable" {
						t.Errorf("%s, though the refusal was heard", line)
					}
				}
				if heard == 0 || calls.Load() != 0 {
					t.Errorf("the refusal was heard %d times of 50, and the service was called %d times", heard, calls.Load())
				}
			})
		}
	}
}
