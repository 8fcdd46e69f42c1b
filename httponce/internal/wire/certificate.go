package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
)

// certificateAlerts are those by which a server says, in its handshake, that it does not take the client's certificate, or misses one
// (RFC 8446, 6.2): bad_certificate to certificate_unknown, unknown_ca, access_denied, and certificate_required.
var certificateAlerts = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// RefusesCertificate reports whether an error is the server's word that it does not take the client's certificate. crypto/tls has no
// type for an alert that comes in, but one for an alert's text.
func RefusesCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" &&
		slices.ContainsFunc(certificateAlerts, func(a tls.AlertError) bool { return op.Err.Error() == a.Error() })
}
