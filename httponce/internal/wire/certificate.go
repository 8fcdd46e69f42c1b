package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"slices"
)

// certificateAlerts are the alerts by which a server refuses the client's certificate, or requires one (RFC 8446, 6.2):
// bad_certificate to certificate_unknown, unknown_ca, access_denied, and certificate_required.
var certificateAlerts = []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116}

// RefusesCertificate reports whether an error says that the server refused the client's certificate. crypto/tls has no
// type for a received alert, but one for its text.
func RefusesCertificate(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "remote error" &&
		slices.ContainsFunc(certificateAlerts, func(a tls.AlertError) bool { return op.Err.Error() == a.Error() })
}
