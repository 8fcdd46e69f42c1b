package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/process"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/store/sqlitestore"
)

// The hidden commands by which this program is one of the demo's programs.
const (
	ServiceName = "demo-service"
	GatewayName = "demo-gateway"
	ProxyName   = "demo-proxy"
)

// GatewayCommand returns the arguments that make this program the e-mail gateway.
func GatewayCommand(ledger string) []string { return []string{GatewayName, "--ledger", ledger} }

// ServiceCommand returns the arguments that make this program the payment service.
func ServiceCommand(mode Mode, books, gateway, listen string) []string {
	return []string{ServiceName, "--mode", string(mode), "--books", books, "--gateway", gateway, "--listen", listen}
}

// ProxyCommand returns the arguments that make this program the proxy in front of a service: but for the name of
// the command, they are those of "everonce proxy".
func ProxyCommand(upstream, store string) []string {
	return []string{
		ProxyName, "--listen", process.Anywhere, "--upstream", upstream, "--store", "sqlite:" + store, "--admin", "none", "--access-log=false",
		"--principal", "none", "--required", "--unknown", "refuse", "--lease", Lease.String(), "--wait", (Lease + grace).String(),
	}
}

// grace is how much longer than a lease the proxy lets a repetition wait.
const grace = 500 * time.Millisecond

// ServeGateway is the e-mail gateway's life.
func ServeGateway(ctx context.Context, in io.Reader, out io.Writer, ledger string) error {
	l, err := gateway.OpenLedger(ledger)
	if err != nil {
		return err
	}
	return errors.Join(process.Serve(ctx, in, out, process.Anywhere, gateway.New(l)), l.Close())
}

// ServeService is the payment service's life.
func ServeService(ctx context.Context, in io.Reader, out io.Writer, mode Mode, books, gatewayURL, listen string) error {
	s, err := openService(ctx, mode, books, gateway.NewClient(gatewayURL))
	if err != nil {
		return err
	}
	return errors.Join(process.Serve(ctx, in, out, listen, s), s.Close())
}

func openService(ctx context.Context, mode Mode, books string, mails *gateway.Client) (*service.Service, error) {
	switch mode {
	case Without:
		return service.OpenWithout(books, mails)
	case With:
		store, err := sqlitestore.Open(ctx, books, nil)
		if err != nil {
			return nil, err
		}
		return service.NewWith(store, mails, Lease)
	}
	return nil, fmt.Errorf("there is no mode %q", mode)
}
