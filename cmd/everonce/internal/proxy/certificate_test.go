package proxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// writePair writes a certificate of that name, and its key.
func writePair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	key = filepath.Join(dir, "key.pem")
	writePEM(t, key, "PRIVATE KEY", secret)
	return writeCertificate(t, dir, name, private), key
}

// writeCertificate writes a certificate of that name for a key.
func writeCertificate(t *testing.T, dir, name string, private *ecdsa.PrivateKey) (cert string) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	cert = filepath.Join(dir, "cert.pem")
	writePEM(t, cert, "CERTIFICATE", der)
	return cert
}

// writePEM replaces a file.
func writePEM(t *testing.T, file, kind string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

// A new certificate is served as soon as its files exist, over HTTP/1.1 and HTTP/2. One that cannot be used leaves the
// old one in place. Open connections are kept.
func TestProxyTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "first")
	var proto string
	p := start(t, func(_ http.ResponseWriter, r *http.Request) { proto = r.Header.Get("X-Forwarded-Proto") }, "--tls-cert="+cert, "--tls-key="+key)
	get := func(protocol string) (name, spoken string) {
		t.Helper()
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{protocol}}, ForceAttemptHTTP2: protocol == "h2", DisableKeepAlives: true}
		defer tr.CloseIdleConnections()
		res, err := (&http.Client{Transport: tr}).Get(p.url + "/")
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.TLS.PeerCertificates[0].Subject.CommonName, res.Proto
	}
	check := func(want string) {
		t.Helper()
		for protocol, spoken := range map[string]string{"h2": "HTTP/2.0", "http/1.1": "HTTP/1.1"} {
			if name, got := get(protocol); name != want || got != spoken || proto != "https" {
				t.Errorf("%s: certificate %q over %s, the upstream sees %q; want %q over %s, https", protocol, name, got, proto, want, spoken)
			}
		}
	}
	check("first")
	writePair(t, dir, "second")
	check("second")
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, dir, "renewed", pair.PrivateKey.(*ecdsa.PrivateKey)) // for the same key
	check("renewed")
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	check("renewed")
	if err := os.Remove(cert); err != nil {
		t.Fatal(err)
	}
	check("renewed")
	writePair(t, dir, "third")
	check("third")
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	check("third")
	if c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
		c.Close()
		t.Error("TLS 1.1 is spoken")
	}
	log := p.log.String()
	for said, times := range map[string]int{"certificate not reloaded": 3, "certificate reloaded": 3} { // each once, and not at every handshake
		if n := strings.Count(log, said); n != times {
			t.Errorf("the log says %d times that it %s, want %d: %s", n, said, times, log)
		}
	}
}

// An upstream is believed to be itself by the CA of upstream-ca, and by no other: who is in its place gets nothing.
func TestProxyTrustsTheUpstreamsCA(t *testing.T) {
	var service counting
	up := httptest.NewTLSServer(&service)
	t.Cleanup(up.Close)
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	own := filepath.Join(t.TempDir(), "own.pem")
	if err := os.WriteFile(own, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: up.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	other, _ := writePair(t, t.TempDir(), "other")
	for file, want := range map[string]int{own: http.StatusCreated, other: http.StatusBadGateway} {
		p := startBefore(t, up.URL, "--upstream-ca="+file)
		if res, body := send(t, "POST", p.url+"/", "", "Idempotency-Key", "k"); res.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", filepath.Base(file), res.StatusCode, body, want)
		}
	}
	if n := service.count(); n != 1 {
		t.Errorf("the service was called %d times, want once", n)
	}
}

// A file is another where any of these has changed: which file it is, its time, its size. Certificates are replaced by
// a new file or in place, and a new one is mostly as long as the old.
func TestCertificateIsNoticed(t *testing.T) {
	dir := t.TempDir()
	stat := func(name, text string, at time.Time) [2]os.FileInfo {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file, at, at); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return [2]os.FileInfo{info, info}
	}
	at := time.Unix(1_700_000_000, 0)
	first := stat("a", "old", at)
	for name, now := range map[string][2]os.FileInfo{
		"another file": stat("b", "new", at),
		"another time": stat("a", "new", at.Add(time.Second)),
		"another size": stat("a", "newer", at),
	} {
		if sameFiles(first, now) {
			t.Errorf("%s is not noticed", name)
		}
	}
	if !sameFiles(first, stat("a", "old", at)) {
		t.Error("the same file is another")
	}
}

// Handshakes come at the same time, and while the files are replaced.
func TestCertificateOfManyHandshakes(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "first")
	c, err := loadCertificate(cert, key, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var hands sync.WaitGroup
	for range 4 {
		hands.Go(func() {
			for range 100 {
				if c.get() == nil {
					t.Error("no certificate")
				}
			}
		})
	}
	for range 3 {
		writePair(t, dir, "next")
	}
	hands.Wait()
}

// A client that speaks HTTP without TLS gets an error that says so, as with net/http alone: a connection that just
// closes does not reveal that its URL is wrong.
func TestProxyTLSTellsWhoSpeaksWithoutIt(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	p := start(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, "--tls-cert="+cert, "--tls-key="+key)
	res, err := http.Get("http" + strings.TrimPrefix(p.url, "https"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusBadRequest || !strings.Contains(string(text), "HTTPS") {
		t.Errorf("it is %s: %q", res.Status, text)
	}
}

// Requests that are rejected over TCP are rejected over TLS.
func TestProxyTLSRefusesSmuggling(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	p := start(t, func(http.ResponseWriter, *http.Request) { t.Error("the upstream was called") }, "--tls-cert="+cert, "--tls-key="+key)
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
	if answer, _ := io.ReadAll(c); !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") {
		t.Errorf("%q", answer)
	}
}

// A client that does not begin its handshake delays no other client, however long it takes; a client that does not
// speak TLS is disconnected.
func TestProxyTLSHandshakesAreApart(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	p := start(t, func(http.ResponseWriter, *http.Request) {}, "--tls-cert="+cert, "--tls-key="+key, "--header-timeout=1h")
	addr := strings.TrimPrefix(p.url, "https://")
	var conns [2]net.Conn
	for i := range conns {
		c, err := net.DialTimeout("tcp", addr, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	c, err := tls.DialWithDialer(&net.Dialer{Timeout: 10 * time.Second}, "tcp", addr, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	conns[1].SetDeadline(time.Now().Add(10 * time.Second))
	io.WriteString(conns[1], "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := io.ReadAll(conns[1]); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("who speaks no TLS has his connection still")
	}
}

// Nor does it keep the proxy from its end.
func TestAHandshakeIsGivenUpAtTheEnd(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	p := start(t, func(http.ResponseWriter, *http.Request) {}, "--tls-cert="+cert, "--tls-key="+key, "--header-timeout=24h", "--drain-timeout=24h")
	slow, err := net.Dial("tcp", strings.TrimPrefix(p.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true}) // after which the other one is accepted
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	p.stop()
	if <-p.ended; p.err != nil {
		t.Error(p.err)
	}
}

// A client that begins no handshake does not keep others from theirs, and is cut off.
func TestProxyTLSSlowHandshake(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "proxy")
	p := start(t, func(http.ResponseWriter, *http.Request) {}, "--tls-cert="+cert, "--tls-key="+key, "--header-timeout=200ms")
	slow, err := net.Dial("tcp", strings.TrimPrefix(p.url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n, err := io.Copy(io.Discard, slow); n != 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
}
