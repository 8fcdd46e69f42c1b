package main

import (
	"github.com/spf13/cobra"

	"github.com/everonce/everonce/demo"
)

// demo shows what everonce is for.
func (a *app) demo() *cobra.Command {
	var c demo.Config
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   demo.Short,
		Long:    demo.Long,
		Example: "  everonce demo\n  everonce demo --via proxy\n  everonce demo --operations 1000 --kills 10\n  everonce demo --json --seed 7 | jq .with",
		Args:    noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			if err := c.Check(); err != nil {
				return usagef("%w", err)
			}
			return demo.Run(cmd.Context(), c, a.out, a.err)
		}),
	}
	cmd.Flags().AddGoFlagSet(c.Flags())
	complete(cmd, "via", demo.ViaProxy)
	return cmd
}

// demoChild runs a process of the demo: this program again.
func (a *app) demoChild() *cobra.Command {
	return &cobra.Command{
		Use:                demo.ChildCommand,
		Short:              "A process of the demo",
		Hidden:             true,
		DisableFlagParsing: true, // a file may have any name
		RunE: a.run(func(cmd *cobra.Command, args []string) error {
			return demo.Serve(cmd.Context(), args, a.in, a.out)
		}),
	}
}
