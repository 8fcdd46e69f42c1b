package rabbitonce_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/consume"
	"github.com/everonce/everonce/consume/rabbitonce"
	"github.com/everonce/everonce/store/memstore"
)

// authority makes certificates.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), pool: x509.NewCertPool()}
	a.cert, a.key = a.sign("authority", x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.write("authority", a.cert, a.key)
	a.pool.AddCert(a.cert)
	return a
}

// sign makes a certificate, signed by the authority if there is one already.
func (a *authority) sign(name string, template x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.Subject = serial, pkix.Name{CommonName: name}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = &template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name+".pem") }

// write puts a certificate and its key into files.
func (a *authority) write(name string, cert *x509.Certificate, key *ecdsa.PrivateKey) {
	a.t.Helper()
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name:          {Type: "CERTIFICATE", Bytes: cert.Raw},
		name + ".key": {Type: "EC PRIVATE KEY", Bytes: der},
	} {
		if err := os.WriteFile(a.file(file), pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// listen makes the node listen for TLS too, with a certificate for 127.0.0.1 and broker.test, and returns the URL.
func (n *node) listen(a *authority, more string) string {
	a.t.Helper()
	u, err := url.Parse(n.URL)
	if err != nil {
		a.t.Fatal("the node's URL is invalid")
	}
	plain, err := strconv.Atoi(u.Port())
	if err != nil {
		a.t.Fatal(err)
	}
	port := plain + 4000 // below what outgoing connections are given, as the node's own are
	for ; ; port++ {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			l.Close() //nolint:errcheck // the port was free
			break
		}
		if port > plain+4100 {
			a.t.Fatal("no port is free")
		}
	}
	n.ctl("eval", fmt.Sprintf(`{ok, _} = application:ensure_all_started(ssl),
		ok = rabbit_networking:start_ssl_listener({"127.0.0.1", %d, inet}, [{cacertfile, %q}, {certfile, %q}, {keyfile, %q}%s], 1).`,
		port, a.file("authority"), a.file("broker"), a.file("broker.key"), more))
	u.Scheme, u.Host = "amqps", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return u.String()
}

// certificates makes an authority's certificates of a broker and a client.
func certificates(t *testing.T) (*authority, tls.Certificate) {
	t.Helper()
	a := newAuthority(t)
	broker, key := a.sign("broker.test", x509.Certificate{
		DNSNames: []string{"broker.test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	a.write("broker", broker, key)
	client, key := a.sign("billing", x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	a.write("client", client, key)
	return a, tls.Certificate{Certificate: [][]byte{client.Raw}, PrivateKey: key}
}

// A broker with TLS serves clients that trust its authority and expect its name, on every connection; others get an
// error that says what is wrong, without the password.
func (n *node) tls(t *testing.T) {
	a, client := certificates(t)
	anybody := n.listen(a, "")
	known := n.listen(a, ", {verify, verify_peer}, {fail_if_no_peer_cert, true}")
	n.encrypted(t, anybody, a)
	t.Run("Refused", func(t *testing.T) {
		other := newAuthority(t)
		encryptedOnly := strings.Replace(anybody, "amqps", "amqp", 1)
		for name, tc := range map[string]struct {
			url  string
			tls  *tls.Config
			says string
		}{
			"NoAuthority":          {anybody, nil, "certificate signed by unknown authority"},
			"AnotherAuthority":     {anybody, &tls.Config{RootCAs: other.pool}, "certificate signed by unknown authority"},
			"AnotherName":          {anybody, &tls.Config{RootCAs: a.pool, ServerName: "other.test"}, "not other.test"},
			"AnotherHost":          {strings.Replace(anybody, "127.0.0.1", "localhost", 1), &tls.Config{RootCAs: a.pool}, "not localhost"},
			"AnotherName,InTheURL": {anybody + "?cacertfile=" + a.file("authority") + "&server_name_indication=other.test", nil, "not other.test"},
			"NoFile":               {anybody + "?cacertfile=" + a.file("none"), nil, "no such file"},
			"NotEncrypted":         {strings.Replace(n.URL, "amqp", "amqps", 1), &tls.Config{RootCAs: a.pool}, "does not look like a TLS handshake"},
			"OnlyEncrypted":        {encryptedOnly, nil, ""},
			// From TLS 1.3 on a broker refuses a client after its handshake, which shows as a cut connection as well.
			"NoClientCertificate":   {known, &tls.Config{RootCAs: a.pool, MaxVersion: tls.VersionTLS12}, "remote error: tls: "},
			"NoClientCertificate13": {known, &tls.Config{RootCAs: a.pool}, ""},
			"ForeignClient":         {known, &tls.Config{RootCAs: a.pool, MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{foreign(t)}}, "remote error: tls: "},
			"ConfigurationNotUsed!": {n.URL, &tls.Config{RootCAs: a.pool}, "amqps://"},
		} {
			_, err := rabbitonce.DialDeadLetters(t.Context(), tc.url, rabbitonce.Queue{Name: "any"}, &rabbitonce.Options{TLS: tc.tls})
			wrong := rabbitonce.ErrUnreachable
			if name == "ConfigurationNotUsed!" {
				wrong = everonce.ErrInvalidArgument
			}
			if !errors.Is(err, wrong) || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v, want it to say %q", name, err, tc.says)
			}
			if u, _ := url.Parse(n.URL); err != nil {
				if password, _ := u.User.Password(); strings.Contains(err.Error(), password) {
					t.Errorf("%s: the error has the password", name)
				}
			}
		}
	})
	for name, tc := range map[string]struct {
		url string
		tls *tls.Config
	}{
		"Name":              {anybody, &tls.Config{RootCAs: a.pool, ServerName: "broker.test"}},
		"URL":               {anybody + "?cacertfile=" + a.file("authority") + "&server_name_indication=broker.test", nil},
		"ClientCertificate": {known, &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{client}}},
		"ClientCertificateInTheURL": {
			known + "?cacertfile=" + a.file("authority") + "&certfile=" + a.file("client") + "&keyfile=" + a.file("client.key"), nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBenchOn(t, n.URL)
			r := b.runOn(memstore.New(nil), tc.url, specOf(nothing), &rabbitonce.Options{TLS: tc.tls})
			b.send(message("m-1"))
			r.wants(everonce.Executed)
			r.stop()
			b.wantLength(b.queue.Name, 0)
		})
	}
}

// foreign is a client's certificate that the broker does not trust.
func foreign(t *testing.T) tls.Certificate {
	t.Helper()
	_, c := certificates(t)
	return c
}

// encrypted: messages, retries, dead letters, and the connection that is made again, all by TLS.
func (n *node) encrypted(t *testing.T, address string, a *authority) {
	t.Helper()
	b := newBenchOn(t, n.URL)
	opts, again := connections(&rabbitonce.Options{TLS: &tls.Config{RootCAs: a.pool}})
	failed := false
	r := b.runOn(memstore.New(nil), address, specOf(func(_ context.Context, m *consume.Message, _ order) error {
		if m.ID == "bad" {
			return everonce.Permanent("bad", errClosed, nil)
		}
		if !failed {
			failed = true
			return everonce.NotDone(errClosed)
		}
		return nil
	}), opts)
	b.send(message("m-1"))
	r.wants(everonce.Failed, everonce.Executed)
	n.ctl("eval", `[_|_] = [rabbit_networking:close_connection(Pid, "a test") || [{pid, Pid}, {ssl, true}] <- rabbit_networking:connection_info_all([pid, ssl])].`)
	wait(t, "the connection to be made again", again)
	b.send(message("bad"))
	r.wants(everonce.Rejected)
	letters, err := rabbitonce.DialDeadLetters(t.Context(), address, b.queue, &rabbitonce.Options{TLS: &tls.Config{RootCAs: a.pool}})
	if err != nil {
		t.Fatal(err)
	}
	b.wantLength(b.queue.DeadLetters, 1)
	if discarded, err := letters.Discard(t.Context(), consume.Filter{}); discarded != 1 || err != nil {
		t.Errorf("%d discarded, %v", discarded, err)
	}
	if err := letters.Close(); err != nil {
		t.Error(err)
	}
	r.stop()
}

// A listener accepts the connection and does not answer: the handshake can be given up.
func TestAHandshakeThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it was only for this
	for _, scheme := range []string{"amqp", "amqps"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		impatient, given := errors.New("impatient"), make(chan struct{})
		var gaveUp time.Time
		go func() {
			if conn, err := l.Accept(); err == nil {
				gaveUp = time.Now()
				cancel(impatient)
				defer conn.Close() //nolint:errcheck // it was only for this
			}
			<-given // and not before: it hangs
		}()
		_, err := rabbitonce.DialDeadLetters(ctx, scheme+"://user:secret@"+l.Addr().String(), rabbitonce.Queue{Name: "any"}, nil)
		if !errors.Is(err, rabbitonce.ErrUnreachable) || !errors.Is(err, impatient) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", scheme, err)
		}
		if late := time.Since(gaveUp); late > 10*time.Second { // of the 15 that a handshake may take
			t.Errorf("%s: it went on for %v", scheme, late)
		}
		close(given)
	}
}
