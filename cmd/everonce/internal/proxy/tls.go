package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
)

// certificate reads the pair of files that two settings name; none where both are empty.
func (s *Server) certificate(certSetting, certFile, keySetting, keyFile string) (*certificate, error) {
	if certFile == "" && keyFile == "" {
		return nil, nil //nolint:nilnil // no TLS is configured
	}
	if certFile == "" || keyFile == "" {
		return nil, invalid("%s and %s go together", certSetting, keySetting)
	}
	c, err := loadCertificate(certFile, keyFile, s.log.With("setting", certSetting))
	if err != nil {
		return nil, invalid("%s: %w", certSetting, err)
	}
	return c, nil
}

// clientTLS is what clients' connections are served with; nil where they are without TLS.
func clientTLS(c *certificate) *tls.Config {
	if c == nil {
		return nil
	}
	return &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.get(), nil },
		NextProtos:     []string{"h2", "http/1.1"}, MinVersion: tls.VersionTLS12,
	}
}

// upstreamTLS is by what the upstream is trusted, and by what it may know the proxy; nil where no setting speaks of
// that.
func (s *Server) upstreamTLS(upstream *url.URL) (*tls.Config, error) {
	pair, err := s.certificate("upstream-tls-cert", s.conf.UpstreamTLSCert, "upstream-tls-key", s.conf.UpstreamTLSKey)
	switch {
	case err != nil:
		return nil, err
	case s.conf.UpstreamCA == "" && pair == nil:
		return nil, nil //nolint:nilnil // the default
	case upstream.Scheme != "https" && pair != nil:
		return nil, invalid("upstream-tls-cert: the upstream is not https (it would not get the certificate)")
	case upstream.Scheme != "https":
		return nil, invalid("upstream-ca: the upstream is not https (it has no certificate to check)")
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if pair != nil {
		conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.get(), nil }
	}
	if s.conf.UpstreamCA != "" {
		if conf.RootCAs, err = readRoots(s.conf.UpstreamCA); err != nil {
			return nil, invalid("upstream-ca: %w", err)
		}
	}
	return conf, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file) //nolint:gosec // the file that the user named
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s contains no certificate", file)
	}
	return roots, nil
}
