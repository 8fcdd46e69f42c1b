package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An upstream that asks for a certificate gets the one from upstream-tls-cert, and a new one as soon as its files
// exist. While it accepts none, nothing is done, and the key is free.
func TestProxyShowsTheUpstreamItsCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "old")
	trusted, _ := writePair(t, t.TempDir(), "trusted")
	clients := x509.NewCertPool()
	add := func(file string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil || !clients.AppendCertsFromPEM(text) {
			t.Fatal(err)
		}
	}
	add(trusted)
	var service counting
	var seen string
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.TLS.PeerCertificates[0].Subject.CommonName
		service.ServeHTTP(w, r)
	}))
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12}
	up.TLS.VerifyConnection = func(s tls.ConnectionState) error {
		_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: clients, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
		return err
	}
	up.StartTLS()
	t.Cleanup(up.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	p := startBefore(t, up.URL, "--upstream-ca="+ca, "--upstream-tls-cert="+cert, "--upstream-tls-key="+key, "--upstream-idle=0s")
	if res, body := send(t, "POST", p.url+"/", "", "Idempotency-Key", "k"); res.StatusCode != http.StatusBadGateway || !strings.Contains(body, "upstream-unreachable") {
		t.Errorf("with a certificate that it does not take: %d %s", res.StatusCode, body)
	}
	writePair(t, dir, "new")
	add(cert)
	if res, body := send(t, "POST", p.url+"/", "", "Idempotency-Key", "k"); res.StatusCode != http.StatusCreated || seen != "new" {
		t.Errorf("with a new one: %d %s, by %q", res.StatusCode, body, seen)
	}
	if n := service.count(); n != 1 {
		t.Errorf("the service was called %d times, want once", n)
	}
	if !strings.Contains(p.log.String(), `"setting":"upstream-tls-cert"`) {
		t.Errorf("the log does not say which certificate was read again: %s", p.log.String())
	}
}
