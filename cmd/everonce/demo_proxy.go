package main

import (
	"log/slog"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
	"github.com/everonce/everonce/cmd/everonce/internal/demo/process"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy"
	"github.com/everonce/everonce/cmd/everonce/internal/proxy/config"
)

// demoProxy is the proxy in front of the demo's service: the server of "everonce proxy", with its flags, in a
// process that ends with the demo's.
func (a *app) demoProxy() *cobra.Command {
	cmd := &cobra.Command{
		Use:    demo.ProxyName,
		Short:  "The demo's proxy",
		Args:   noArgs,
		Hidden: true,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			signal.Ignore(os.Interrupt) // Ctrl-C is the demo's, which ends us
			conf, _, err := config.Load(cmd.Flags(), nil, "")
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelError}))
			srv, err := proxy.New(cmd.Context(), conf, log)
			if err != nil {
				return err
			}
			ctx, release := process.UntilParentEnds(cmd.Context(), a.in)
			defer release()
			addr, _ := srv.Addrs()
			if err := process.Announce(a.out, addr); err != nil {
				return err
			}
			return srv.Run(ctx, nil)
		}),
	}
	config.AddFlags(cmd.Flags())
	return cmd
}
