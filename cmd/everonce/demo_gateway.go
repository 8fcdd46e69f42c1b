package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
)

// demoGateway is the demo's e-mail gateway: this program again, as a process of its own.
func (a *app) demoGateway() *cobra.Command {
	var ledger string
	cmd := &cobra.Command{
		Use:    demo.GatewayName,
		Short:  "The demo's e-mail gateway",
		Args:   noArgs,
		Hidden: true,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt) // Ctrl-C is the demo's, which ends us
			return demo.ServeGateway(cmd.Context(), a.in, a.out, ledger)
		}),
	}
	cmd.Flags().StringVar(&ledger, "ledger", "", "the gateway's ledger")
	return cmd
}
