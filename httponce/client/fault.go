package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// hopeless are the beginnings of net/http's errors about the request, its end by Request.Cancel included, or about a peer
// that will not change, which have neither a type nor a name. TestTransportErrorsThatAreNotRetried makes net/http say each of them.
var hopeless = []string{
	"unsupported protocol scheme",
	"http: nil Request.",
	"http: no Host in request URL",
	"http: ContentLength=",
	"http: Request.ContentLength=",
	"net/http: invalid ",
	"net/http: request canceled",
	"http2: request body larger than specified content length",
}

// mayHelp reports whether sending again may help after an error of the base. It is always safe, because the
// attempts have one key, so all errors are retried but those that are known to come again.
func mayHelp(err error) bool {
	var (
		verify  *tls.CertificateVerificationError
		name    x509.HostnameError
		issuer  x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		roots   x509.SystemRootsError
		record  tls.RecordHeaderError
		addr    *net.AddrError
		network net.UnknownNetworkError
		parse   *net.ParseError
	)
	switch {
	case errors.Is(err, errBodyLength):
		return false
	case errors.Is(err, context.Canceled): // by a layer below: the request's own context was checked
		return false
	case errors.As(err, &verify), errors.As(err, &name), errors.As(err, &issuer), errors.As(err, &invalid), errors.As(err, &roots):
		return false // whose certificate does not hold now will not hold in a second
	case wire.RefusesCertificate(err):
		return false
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch): // it does not speak TLS
		return false
	case errors.As(err, &addr), errors.As(err, &network), errors.As(err, &parse): // not an address
		return false
	case errors.Is(err, http.ErrSkipAltProtocol), errors.Is(err, http.ErrNotSupported):
		return false
	}
	for text := err; text != nil; text = errors.Unwrap(text) {
		for _, beginning := range hopeless {
			if strings.HasPrefix(text.Error(), beginning) {
				return false
			}
		}
	}
	return true
}
