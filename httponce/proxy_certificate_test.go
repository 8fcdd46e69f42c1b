package httponce_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/everonce/everonce/httponce"
)

// An upstream that refuses the proxy's certificate, because it has expired perhaps, has processed nothing. In TLS 1.3 it says so when the
// request was written already; without that word, as where the connection's end comes before it, the outcome is unknown.
func TestProxyReleasesWhatRefusesItsCertificate(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		for _, presented := range []bool{false, true} {
			t.Run(fmt.Sprintf("HTTP2 %v, certificate %v", http2, presented), func(t *testing.T) {
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
				srv := newProxy(t, u, nil, &httponce.ProxyOptions{TLS: conf, Log: slog.New(slog.NewTextHandler(&logs, nil))})
				heard := 0
				for i := range 20 {
					logs.Reset()
					status, _, body := post(t, srv, "/", fmt.Sprint("k", i), "amount=1")
					want := "upstream-lost"
					if said := strings.Contains(logs.String(), "remote error: tls: "); said || strings.Contains(logs.String(), "client conn could not be established") {
						heard++
						want = "upstream-unreachable"
					}
					if status != http.StatusBadGateway || !strings.Contains(body, want) {
						t.Errorf("%d %s, want 502 %s, since %s", status, body, want, logs.String())
					}
				}
				if heard == 0 || calls.Load() != 0 {
					t.Errorf("the refusal was heard %d times of 20, and the service was called %d times", heard, calls.Load())
				}
			})
		}
	}
}
