// Package proxy is the server of `everonce proxy`.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/identity"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/principal"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/httponce"
	"github.com/everonce/everonce/httponce/proxy"
	"github.com/everonce/everonce/store/memstore"
)

// Server is a proxy that is ready to run.
type Server struct {
	conf    *config.Config
	log     *slog.Logger
	store   storeurl.Store
	metrics *metrics
	ready   *readiness
	running *tally // operations
	serving *tally // requests of clients
	secret  []byte // of the identities
	opener  storeurl.Opener
	noted   []string // what the store has said of its durability; the census alone has it

	public, private *http.Server
	publicLn        net.Listener
	privateLn       net.Listener // nil: none
}

// maxHead bounds the head of a request, in bytes.
const maxHead = 64 << 10

// openTimeout is how long the store has to open, and to create its tables. Clients are connected already, and wait.
const openTimeout = time.Minute

// lookTimeout bounds a look for a first record, among the other data of a server perhaps.
const lookTimeout = 2 * time.Second

// New opens the listeners and then the store: if a port is taken, no store is created or bound to an identity. Requests
// are not served before [Server.Run]. Errors wrap [config.ErrInvalid] if the configuration is wrong, and
// [everonce.ErrStore] if the store cannot be reached. On an error New closes what it opened.
func New(ctx context.Context, conf *config.Config, log *slog.Logger) (*Server, error) {
	s := newServer(conf, log)
	handler, certs, err := s.prepare()
	if err != nil {
		return nil, err
	}
	err = s.listen(ctx)
	if err == nil {
		handler, err = s.open(ctx, openTimeout, handler)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.warnTempFiles()
	s.serve(s.front(handler), certs)
	return s, nil
}

// Check returns the error by which [New] would refuse the configuration. It opens neither listeners nor the store.
func Check(conf *config.Config, log *slog.Logger) error {
	_, _, err := newServer(conf, log).prepare()
	return err
}

func newServer(conf *config.Config, log *slog.Logger) *Server {
	return &Server{conf: conf, log: log, running: newTally(), serving: newTally(), metrics: newMetrics(slices.Collect(maps.Keys(conf.Routes)))}
}

// prepare makes what needs no store, so that a wrong configuration creates none.
func (s *Server) prepare() (http.Handler, *certificate, error) {
	c := s.conf
	upstream, err := url.Parse(c.Upstream)
	if err != nil { // its text may hold a password
		return nil, nil, invalid("upstream is not a URL")
	}
	opts, err := s.upstreamOptions(upstream)
	if err != nil {
		return nil, nil, err
	}
	handler, err := proxy.New(upstream, opts)
	if err != nil {
		return nil, nil, invalidArgument(err)
	}
	certs, err := s.certificate("tls-cert", c.TLSCert, "tls-key", c.TLSKey)
	if err != nil {
		return nil, nil, err
	}
	if err := checkListen(c.Listen); err != nil {
		return nil, nil, invalid("listen: %w", err)
	}
	if isItself(c.Listen, upstream) {
		return nil, nil, invalid("upstream: it is the address of the proxy itself, %s (requests would loop)", c.Listen)
	}
	if hasAdmin(c) {
		if err := checkAdmin(c.Admin, c.AdminAnywhere); err != nil {
			return nil, nil, invalid("%w", err)
		}
		if sameListener(c.Listen, c.Admin) {
			return nil, nil, invalid("admin: it is the address for clients, %s (use another port)", c.Listen)
		}
	}
	if err := s.checkRoutes(); err != nil {
		return nil, nil, err
	}
	if s.opener, err = storeurl.Prepare(c.Store, storeurl.Options{TablePrefix: c.TablePrefix, Schema: c.Schema, Log: s.log}); err != nil {
		return nil, nil, invalid("store: %s", inSettings(err.Error()))
	}
	if s.secret, err = identity.Secret(c.Secret); err != nil { // once: the file may be a pipe
		return nil, nil, invalid("identity-secret-file: %w", err)
	}
	_, _, err = s.guard(memstore.New(nil)) // a fresh store has no notes
	return handler, certs, err
}

// upstreamOptions returns the options of the upstream's handler.
func (s *Server) upstreamOptions(upstream *url.URL) (opts *proxy.Options, err error) {
	c := s.conf
	opts = &proxy.Options{
		KeyHeader: c.KeyHeader, DownstreamKey: c.UpstreamKey == config.KeyDownstream, UpstreamHost: c.UpstreamHost, TrustForwarded: c.TrustForwarded,
		ConnectTimeout: c.UpstreamConnect, IdleTimeout: c.UpstreamIdle, MaxIdle: c.UpstreamMaxIdle, ProblemBase: c.ProblemBase, StripeErrors: c.Profile == httponce.ProfileStripe, Log: s.log,
	}
	if c.UpstreamIdle == 0 {
		opts.IdleTimeout = -1
	}
	opts.TLS, err = s.upstreamTLS(upstream)
	return opts, err
}

func hasAdmin(c *config.Config) bool { return c.Admin != "" && c.Admin != config.NoAdmin }

// checkRoutes refuses what contradicts itself.
func (s *Server) checkRoutes() error {
	routes := map[string]config.Route{"": s.conf.Route}
	for pattern, r := range s.conf.Routes {
		routes[pattern] = r
	}
	protects := false
	for pattern, r := range routes {
		protects = protects || len(r.Methods) > 0
		if r.PrincipalRequired && r.Principal == principal.None {
			return invalid("%sprincipal-required contradicts principal none (remove one of them)", where(pattern))
		}
		if principal.Forwarded(r.Principal) && !s.conf.TrustForwarded {
			return invalid("%sprincipal %s needs trust-forwarded (otherwise any client could send another client's name, and get its answers)", where(pattern), r.Principal)
		}
		if r.KeyJSON != "" && s.conf.UpstreamKey == config.KeyDownstream {
			return invalid("%skey-json contradicts upstream-key downstream (the body is sent as it came, with the client's key)", where(pattern))
		}
		if r.FailOpen && s.conf.UpstreamKey == config.KeyDownstream {
			return invalid("%sfail-open contradicts upstream-key downstream (an unprotected request would reach the upstream with another key)", where(pattern))
		}
	}
	if !protects {
		return invalid("methods: empty here and in all routes (nothing would be protected)")
	}
	return nil
}

func where(pattern string) string {
	if pattern == "" {
		return ""
	}
	return fmt.Sprintf("routes %q: ", pattern)
}

// protect puts the middleware around the proxy.
func (s *Server) protect(ctx context.Context, handler http.Handler) (http.Handler, error) {
	recv, protect, err := s.guard(s.store)
	if err != nil {
		return nil, err
	}
	if err := recv.Ready(ctx); errors.Is(err, driver.ErrIdentity) {
		return nil, invalid("identity-secret-file: not the secret of the store's first start (give that one, or leave it out if it had no secret)")
	} else if err != nil {
		return nil, err
	}
	return protect(paced(handler, s.conf.Stall)), nil
}

// guard makes the receiver of a store, and the middleware.
func (s *Server) guard(store everonce.Store) (*everonce.Receiver, func(http.Handler) http.Handler, error) {
	c := s.conf
	opts, err := s.options()
	if err != nil {
		return nil, nil, err
	}
	recv, err := everonce.NewReceiver(store, c.Route.Unknown, &everonce.Options{
		IdentitySecret: s.secret, Observer: everonce.JoinObservers(s.metrics, s.running), Log: s.log,
	})
	if err != nil {
		return nil, nil, invalidArgument(err)
	}
	protect, err := httponce.Middleware(recv, opts.Principal, opts)
	if err != nil {
		return nil, nil, invalidArgument(err)
	}
	return recv, protect, nil
}

// options returns the middleware's options. A route's principal comes from its own settings only.
func (s *Server) options() (*httponce.Options, error) {
	c := s.conf
	opts := &httponce.Options{
		Route: c.Route.Options(), Routes: map[string]httponce.Route{}, KeyHeader: c.KeyHeader, Marker: c.Marker, EchoKey: c.EchoKey,
		ProblemBase: c.ProblemBase, Profile: c.Profile, RetryAfter: c.RetryAfter, MaxWaiting: c.MaxWaiting, MaxStillRunning: c.MaxStillRunning, MaxBodyMemory: c.MaxBodyMemory, MaxSpool: c.MaxSpool, Log: s.log, Observe: s.observe,
	}
	var err error
	if opts.Principal, err = s.principalOf("", c.Route); err != nil {
		return nil, invalid("principal: %w", err)
	}
	for pattern, r := range c.Routes {
		route := r.Options()
		if route.Principal, err = s.principalOf(pattern, r); err != nil {
			return nil, invalid("%sprincipal: %w", where(pattern), err)
		}
		opts.Routes[pattern] = route
	}
	return opts, nil
}

// invalid is the error of a configuration that is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{config.ErrInvalid}, args...)...)
}

func invalidArgument(err error) error {
	if errors.Is(err, everonce.ErrInvalidArgument) {
		return invalid("%s", inSettings(err.Error()))
	}
	return err
}

// listen opens the listeners. Connections wait until they are served.
func (s *Server) listen(ctx context.Context) (err error) {
	if s.publicLn, err = listenAt(ctx, s.conf.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if !hasAdmin(s.conf) {
		return nil
	}
	var lc net.ListenConfig
	if s.privateLn, err = lc.Listen(ctx, "tcp", s.conf.Admin); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// open opens the store, and puts the middleware around the proxy.
func (s *Server) open(ctx context.Context, within time.Duration, handler http.Handler) (http.Handler, error) {
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := s.openStore(bounded)
	if err == nil {
		handler, err = s.protect(bounded, handler)
	}
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: it did not open within %v: %w", everonce.ErrStore, within, err)
	}
	return handler, err
}

func (s *Server) openStore(ctx context.Context) error {
	store, err := s.opener(ctx)
	if errors.Is(err, everonce.ErrInvalidArgument) {
		return invalid("store: %w", err)
	}
	if err != nil {
		return err
	}
	s.store, s.ready = store, newReadiness(store, s.log)
	if s.conf.Store != storeurl.Memory { // which is empty at each start, and says so
		s.warnEmpty(ctx)
	}
	return nil
}

// warnEmpty warns of a store without a record. This may be its first start; or a volume is not mounted, or the prefix
// is another one. It says nothing if the store does not answer soon.
func (s *Server) warnEmpty(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	if page, err := s.store.List(ctx, driver.ListRequest{Limit: 1}); err == nil && len(page.Records) == 0 {
		s.log.Warn("the store has no records. If this is not the first start, it is a different store: repetitions run AGAIN")
	}
}

// warnTempFiles warns where no temporary file can be written, as on a file system that is for reading only: request
// bodies that are too large for memory would be refused one by one.
func (s *Server) warnTempFiles() {
	f, err := os.CreateTemp("", "everonce-body-*")
	if err == nil {
		err = errors.Join(f.Close(), os.Remove(f.Name()))
	}
	if err != nil {
		s.log.Warn("cannot write temporary files: large bodies with a key will be refused (set TMPDIR to a writable folder)", "error", err)
	}
}

// serve makes the servers of the listeners, for [Server.Run].
func (s *Server) serve(front http.Handler, certs *certificate) {
	c := s.conf
	quiet := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
	s.publicLn = newListener(s.publicLn, clientTLS(certs), c.HeaderTimeout)
	s.public = &http.Server{
		Handler: front, ReadHeaderTimeout: c.HeaderTimeout, IdleTimeout: c.ClientIdle, MaxHeaderBytes: maxHead,
		ConnContext: withTLSState, ErrorLog: quiet,
		DisableGeneralOptionsHandler: true, // it knows nothing of the last request on a connection
	}
	if s.privateLn == nil {
		return
	}
	s.private = &http.Server{
		Handler: s.admin(), ReadHeaderTimeout: c.HeaderTimeout, ReadTimeout: c.HeaderTimeout, WriteTimeout: time.Minute, IdleTimeout: c.ClientIdle, ErrorLog: quiet,
	}
}

// Addrs returns where it listens: for clients, and for operators ("" where it does not).
func (s *Server) Addrs() (public, private string) {
	if s.privateLn != nil {
		private = s.privateLn.Addr().String()
	}
	return s.publicLn.Addr().String(), private
}

// close closes the store and the listeners.
func (s *Server) close() error {
	var errs []error
	for _, ln := range []net.Listener{s.publicLn, s.privateLn} {
		if ln == nil {
			continue
		}
		if err := ln.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	return errors.Join(errs...)
}
