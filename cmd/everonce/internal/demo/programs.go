package demo

import (
	"context"
	"errors"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/process"
)

// viaProxy reports whether this run's records are the proxy's.
func (s *scenario) viaProxy() bool { return s.cfg.ViaProxy && s.mode == With }

// startService starts the service: behind a proxy the one that knows nothing of keys, and where it was before,
// because the proxy was told so. Without a proxy it is connected.
func (s *scenario) startService(ctx context.Context) (err error) {
	mode, listen := s.mode, process.Anywhere
	if s.viaProxy() {
		mode = Without
		if s.service != nil {
			listen = s.service.Addr()
		}
	}
	s.service, err = process.Start(ctx, "the payment service", ServiceCommand(mode, s.books(), "http://"+s.gateway.Addr(), listen)...)
	if err == nil && !s.viaProxy() {
		s.network.Connect(s.service.Addr())
	}
	return err
}

// startProxy starts the proxy, and connects it.
func (s *scenario) startProxy(ctx context.Context) (err error) {
	if s.proxy, err = process.Start(ctx, "the proxy", ProxyCommand("http://"+s.service.Addr(), s.records())...); err == nil {
		s.network.Connect(s.proxy.Addr())
	}
	return err
}

// Victim is what a kill kills.
type Victim string

// The victims. Where there is no proxy, there is only the service.
const (
	TheService Victim = "the service"
	TheProxy   Victim = "the proxy"
	Both       Victim = "the service and the proxy"
)

// victim returns whom kill i kills: behind a proxy they take turns.
func (s *scenario) victim(i int) Victim {
	if !s.viaProxy() {
		return TheService
	}
	return [...]Victim{TheService, TheProxy, Both}[i%3]
}

// strike kills, and starts again what it killed.
func (s *scenario) strike(ctx context.Context, v Victim) error {
	service, proxy := v != TheProxy, v != TheService
	if proxy {
		s.proxy.Kill()
	}
	if service {
		s.service.Kill()
		if err := s.startService(ctx); err != nil {
			return err
		}
	}
	if proxy {
		return s.startProxy(ctx)
	}
	return nil
}

// serviceEnded and proxyEnded are closed when one has ended that was not to. Where there is no proxy, none ends.
func (s *scenario) serviceEnded() <-chan struct{} { return s.service.Done() }

func (s *scenario) proxyEnded() <-chan struct{} {
	if s.proxy == nil {
		return nil
	}
	return s.proxy.Done()
}

// programs are all that run, those first that others need last.
func (s *scenario) programs() (running []*process.Child) {
	for _, c := range []*process.Child{s.proxy, s.service, s.gateway} {
		if c != nil {
			running = append(running, c)
		}
	}
	return running
}

// stop lets the programs finish, and waits for it.
func (s *scenario) stop() (err error) {
	s.result.Network = s.network.Stats()
	for _, c := range s.programs() {
		c.Stop()
		err = errors.Join(err, c.Err())
	}
	return err
}

// kill ends whatever is running, at once.
func (s *scenario) kill() {
	for _, c := range s.programs() {
		c.Kill()
	}
}
