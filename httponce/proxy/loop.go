package proxy

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
)

// pseudonym is the name by which one proxy signs Via (RFC 9110, 7.6.3). Each proxy has its own, so that a request may
// pass one proxy after the other, and none twice. A gateway must send Via; CDN-Loop (RFC 8586) is more often dropped in
// between.
type pseudonym string

func newPseudonym() pseudonym { return pseudonym("everonce-" + rand.Text()) }

// sign adds the proxy to those that the request has passed.
func (p pseudonym) sign(pr *httputil.ProxyRequest) {
	pr.Out.Header.Add("Via", fmt.Sprintf("%d.%d %s", pr.In.ProtoMajor, pr.In.ProtoMinor, p))
}

// signed reports whether a request has passed the proxy before.
func (p pseudonym) signed(r *http.Request) bool {
	return slices.ContainsFunc(r.Header["Via"], func(v string) bool { return strings.Contains(v, string(p)) })
}

var errLoop = errors.New("the request has passed this proxy before: its upstream leads back to it")
