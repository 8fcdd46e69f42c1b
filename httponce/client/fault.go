package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"

	"github.com/everonce/everonce/httponce/internal/wire"
)

// hopeless are the beginnings of net/http's errors about the request, its end by Request.Cancel included, or about a
// peer that will not change, which have neither a type nor a name. TestTransportErrorsThatAreNotRetried makes net/http
// say each of them.
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
	switch {
	case errors.Is(err, errBodyLength),
		errors.Is(err, context.Canceled), // by a layer below: the request's own context was checked
		is[*tls.CertificateVerificationError](err), wire.RefusesCertificate(err),
		is[tls.RecordHeaderError](err), errors.Is(err, http.ErrSchemeMismatch), // the server does not speak TLS
		is[*net.AddrError](err), is[net.UnknownNetworkError](err), is[*net.ParseError](err),
		errors.Is(err, http.ErrSkipAltProtocol), errors.Is(err, http.ErrNotSupported):
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

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
