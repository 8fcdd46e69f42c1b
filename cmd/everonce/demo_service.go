package main

import (
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
)

// demoService is the demo's payment service: this program again, as a process of its own.
func (a *app) demoService() *cobra.Command {
	var mode, books, gateway, listen string
	cmd := &cobra.Command{
		Use:    demo.ServiceName,
		Short:  "The demo's payment service",
		Args:   noArgs,
		Hidden: true,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt) // Ctrl-C is the demo's, which ends us
			return demo.ServeService(cmd.Context(), a.in, a.out, demo.Mode(mode), books, gateway, listen)
		}),
	}
	cmd.Flags().StringVar(&mode, "mode", "", "with or without everonce")
	cmd.Flags().StringVar(&books, "books", "", "database file")
	cmd.Flags().StringVar(&gateway, "gateway", "", "URL of the e-mail gateway")
	cmd.Flags().StringVar(&listen, "listen", "", "address to listen on")
	return cmd
}
