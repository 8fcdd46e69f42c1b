package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/everonce/everonce/cmd/everonce/internal/demo/gateway"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/process"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/service"
	"github.com/everonce/everonce/store/sqlitestore"
)

// The hidden commands by which this program is one of the demo's programs.
const (
	ServiceName = "demo-service"
	GatewayName = "demo-gateway"
)

// GatewayCommand returns the arguments that make this program the e-mail gateway.
func GatewayCommand(ledger string) []string { return []string{GatewayName, "--ledger", ledger} }

// ServiceCommand returns the arguments that make this program the payment service.
func ServiceCommand(mode Mode, books, gateway string) []string {
	return []string{ServiceName, "--mode", string(mode), "--books", books, "--gateway", gateway}
}

// ServeGateway is the e-mail gateway's life.
func ServeGateway(ctx context.Context, in io.Reader, out io.Writer, ledger string) error {
	l, err := gateway.OpenLedger(ledger)
	if err != nil {
		return err
	}
	return errors.Join(process.Serve(ctx, in, out, gateway.New(l)), l.Close())
}

// ServeService is the payment service's life.
func ServeService(ctx context.Context, in io.Reader, out io.Writer, mode Mode, books, gatewayURL string) error {
	s, err := openService(mode, books, gateway.NewClient(gatewayURL))
	if err != nil {
		return err
	}
	return errors.Join(process.Serve(ctx, in, out, s), s.Close())
}

func openService(mode Mode, books string, mails *gateway.Client) (*service.Service, error) {
	switch mode {
	case Without:
		return service.OpenWithout(books, mails)
	case With:
		store, err := sqlitestore.Open(books, nil)
		if err != nil {
			return nil, err
		}
		return service.NewWith(store, mails, Lease)
	}
	return nil, fmt.Errorf("there is no mode %q", mode)
}
