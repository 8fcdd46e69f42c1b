package proxy

import (
	"fmt"
	"log"
	"maps"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/httponce/internal/wire"
	"github.com/everonce/everonce/internal/socketurl"
)

// New returns a handler that passes requests on to a service, in any language, that knows nothing of keys. Put it
// inside a middleware:
//
//	p, err := proxy.New(upstream, nil)
//	…
//	http.Handle("/", protect(p))
//
// An attempt is sent at most once: net/http's own retries are prevented for every method that may have an effect. The
// key of a request ends as follows:
//
//   - Nothing was written to the upstream (it refused the connection, its name is not known, the TLS handshake
//     failed, or a kept connection was dead): the key is released, 502.
//   - HTTP/2 promised, by REFUSED_STREAM or GOAWAY, that the request was not processed: the same.
//   - The upstream refused the certificate of [Options.TLS], which TLS 1.3 reports after the request was written: the
//     same.
//   - The request has passed this proxy before, according to its Via: the key is released, 508.
//   - The connection broke after something was written, or in the middle of the answer: unknown, 502; 504 after a
//     timeout. No Save makes that an answer.
//   - The upstream answered: as the route's Save says, except for temporary problems of a service that honours keys
//     itself, plain or compressed by gzip, the only coding that is asked for. A 409 that means that another attempt is
//     running (by everonce's type, or the draft's title) or that the outcome is unknown (everonce's, by type and
//     title) releases the key. A temporary 503 of everonce's, and a 502, 504 or 508 of another everonce proxy, is
//     unknown, and never saved.
//
// The answer to a request with a key is held until it is recorded, except for text/event-stream and upgrades. An
// upgrade to HTTP, SPDY or TLS is not passed on, because requests on its connection would bypass the middleware. If the
// client disconnects in the middle of a stream, the proxy reads the upstream's answer to its end, within the route's
// Deadline, unless the route says EndWithClient. Requests without a key are streamed both ways in bounded memory.
//
// Every ResponseWriter between the middleware and the proxy needs the method Unwrap, as for [http.ResponseController].
// If one hides the middleware, as [http.TimeoutHandler]'s does, a request without an answer ends as a panic does: its
// connection is closed, and the outcome is unknown, even if nothing was written.
//
// A method that is not in capital letters is answered 501, because some services take "post" for POST, which no
// middleware protects. A target that is not a path, or has a blank in its query, is answered 400, and so is a path
// outside of upstream's path.
//
// upstream is http or https, with or without a path, which is put before the request's path; or it is a Unix domain
// socket, like unix:/run/service.sock, where HTTP/1.1 is spoken. The error wraps [everonce.ErrInvalidArgument].
func New(upstream *url.URL, opts *Options) (http.Handler, error) {
	if err := checkUpstream(upstream); err != nil {
		return nil, err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	to, socket := *upstream, ""
	if to.Scheme == socketurl.Scheme {
		to, socket = url.URL{Scheme: "http", Host: "localhost"}, to.Path
	}
	if to.Path != "" && to.Path[0] != '/' { // of [url.URL.JoinPath] on a host alone
		to.Path, to.RawPath = "/"+to.Path, ""
	}
	p := &handler{opts: o, upstream: &to, name: newPseudonym()}
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      o.transport(socket),
		ModifyResponse: answered,
		ErrorHandler:   p.handleError,
		BufferPool:     &copyBuffers,
		ErrorLog:       log.New(unquoting{o.Log}, "", 0),
	}
	return p, nil
}

// checkUpstream refuses an invalid upstream. Its errors never contain a password.
func checkUpstream(u *url.URL) error {
	switch {
	case u == nil:
		return fmt.Errorf("%w: the upstream is nil", everonce.ErrInvalidArgument)
	case u.User != nil:
		return fmt.Errorf("%w: the upstream's URL has a user (send credentials with the requests)", everonce.ErrInvalidArgument)
	case u.Scheme == socketurl.Scheme:
		if _, err := socketurl.Path(u); err != nil {
			return fmt.Errorf("%w: the upstream %w", everonce.ErrInvalidArgument, err)
		}
		return nil
	case u.Host == "" && strings.Contains(u.Opaque+u.Path, "@"): // what net/url takes for another part may have been meant as a user
		return fmt.Errorf("%w: the upstream is not an http or https URL with a host", everonce.ErrInvalidArgument)
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.Opaque != "":
		return fmt.Errorf("%w: the upstream %q is not an http or https URL with a host", everonce.ErrInvalidArgument, u)
	case !isPort(u.Port()):
		return fmt.Errorf("%w: the upstream %q has an invalid port", everonce.ErrInvalidArgument, u)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%w: the upstream's URL has a query or a fragment", everonce.ErrInvalidArgument)
	}
	return nil
}

// isPort reports whether a URL's port is valid; an empty one is the scheme's.
func isPort(text string) bool {
	_, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil
}

// handler is the proxy.
type handler struct {
	opts     Options // checked
	upstream *url.URL
	name     pseudonym
	reverse  httputil.ReverseProxy
}

func (p *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != strings.ToUpper(r.Method) { // some services take "post" for POST, which no middleware has protected then
		wire.MarkNotDone(w)
		http.Error(w, "a method is written in capital letters", http.StatusNotImplemented)
		return
	}
	if !isPath(r.URL) {
		wire.MarkNotDone(w)
		http.Error(w, "the target of the request is not a path with a query", http.StatusBadRequest)
		return
	}
	if p.upstream.Path != "" && leavesRoot(r.URL.Path) {
		wire.MarkNotDone(w)
		http.Error(w, "the path is outside of the service's path", http.StatusBadRequest)
		return
	}
	x := &passage{w: w}
	if a, ok := everonce.AttemptFrom(r.Context()); ok {
		x.attempt = a
	}
	r = r.WithContext(withPassage(r.Context(), x))
	if p.name.signed(r) {
		p.answerError(w, r, x, errLoop)
		return
	}
	h := &holding{headerKeeper: keepHeader(w), x: x}
	if x.attempt == nil {
		p.reverse.ServeHTTP(&h.headerKeeper, r)
		wire.WithoutWrongTrailers(w.Header())
		return
	}
	defer p.recoverBrokenAnswer(x, r)
	p.reverse.ServeHTTP(h, r)
	// Outside of a server, ReverseProxy returns where it would panic.
	if x.answer.broken() != nil {
		panic(http.ErrAbortHandler)
	}
}

// recoverBrokenAnswer is the end of an attempt. If the upstream's answer broke off, the client gets a problem, or, if a
// part of the answer has been sent, its connection is closed.
func (p *handler) recoverBrokenAnswer(x *passage, r *http.Request) {
	err := x.answer.broken()
	if err == nil {
		return
	}
	cause := recover()
	if cause != http.ErrAbortHandler { //nolint:errorlint // the value of a panic
		panic(cause)
	}
	err = fmt.Errorf("the answer broke off: %w", err)
	// A ResponseWriter in between may have seen a status already, and pass on no other: the problem goes to the
	// middleware's own ResponseWriter.
	recorder, ok := wire.Unwrapped[wire.Recorder](x.w)
	switch {
	case !ok:
		p.cut(r, err)
	case !recorder.Restart():
		panic(cause)
	}
	p.answerError(recorder, r, x, err)
}

func (p *handler) rewrite(pr *httputil.ProxyRequest) {
	x := passageOf(pr.In)
	pr.SetURL(p.upstream)
	pr.Out.URL.RawQuery = pr.In.URL.RawQuery // as it came: nothing here reads it
	if !p.opts.UpstreamHost {
		pr.Out.Host = pr.In.Host
	}
	p.forwarded(pr)
	p.name.sign(pr)
	upgradeWithoutHTTP(pr.Out.Header)
	pr.Out.Trailer = pr.In.Trailer // that very map: its fields come behind the body
	wire.OnlyTrailers(pr.Out.Trailer)
	maps.DeleteFunc(pr.Out.Trailer, func(name string, _ []string) bool {
		return wire.RequestsOwn[name] || name == "Upgrade" || name == p.opts.KeyHeader
	})
	if x.attempt != nil {
		if p.opts.DownstreamKey {
			pr.Out.Header.Set(p.opts.KeyHeader, x.attempt.DownstreamKey(downstreamName))
		} else if key := pr.In.Header[p.opts.KeyHeader]; key != nil { // it is of no one connection, whatever Connection says
			pr.Out.Header[p.opts.KeyHeader] = key
		}
		readable(pr.Out.Header)
		pr.Out.Header.Del("Expect") // the body is here already
		x.bodyErr = holdBody(pr.Out, pr.In.Body)
	} else if pr.Out.Body != nil && pr.Out.Body != http.NoBody {
		x.upload = &upload{ReadCloser: pr.Out.Body, trailer: pr.Out.Trailer, announced: slices.Collect(maps.Keys(pr.Out.Trailer))}
		pr.Out.Body = x.upload
	}
	if x.attempt != nil || !safeMethods[pr.Out.Method] {
		sendOnce(pr.Out)
	}
}

// downstreamName names the upstream's call in the downstream key.
const downstreamName = "upstream"

// safeMethods are those that net/http may send again: they have no effect (RFC 9110, 9.2.1).
var safeMethods = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodOptions: true, http.MethodTrace: true}

// forwarded says for whom the request is made.
func (p *handler) forwarded(pr *httputil.ProxyRequest) {
	if !p.opts.TrustForwarded {
		pr.SetXForwarded()
		return
	}
	in := pr.In.Header
	passed := in["X-Forwarded-For"]
	if len(passed) > 0 {
		passed = []string{strings.Join(passed, ", ")}
		pr.Out.Header["X-Forwarded-For"] = passed
	}
	pr.SetXForwarded()                                              // adds to X-Forwarded-For, and sets the others
	if len(passed) > 0 && pr.Out.Header["X-Forwarded-For"] == nil { // what is in front came by a Unix domain socket, and has no address to add
		pr.Out.Header["X-Forwarded-For"] = passed
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if before := in[name]; len(before) > 0 {
			pr.Out.Header[name] = before
		}
	}
}
