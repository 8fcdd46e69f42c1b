package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

const rootLong = `everonce is the receiver's half of at-least-once delivery: however many times an
operation arrives, it takes effect once.

Start with "everonce demo": it kills a payment service in mid-work, over a network
that loses a quarter of everything, and then counts the charges. It needs no server.

"everonce keys" is for operators: it shows what a store knows of an operation, says
what its next delivery would get and why, and settles what nobody knows.

Exit codes: 0 done, 1 failure, 2 usage, 4 not found, 5 conflict (a live claim),
6 store unreachable, 130 interrupted.`

// app is one run of the program.
type app struct {
	in       io.Reader
	out, err io.Writer
	started  bool // a command runs: what fails from now on is not the fault of whoever typed it
}

// execute runs the program and returns its exit code.
func execute(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	a := &app{in: in, out: out, err: errOut}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	cmd, err := root.ExecuteContextC(ctx)
	if err != nil && !a.started {
		err = usagef("%w", err)
	}
	code := exitCode(ctx, err)
	switch code {
	case exitOK:
	case exitInterrupted:
		fmt.Fprintln(errOut, "everonce: interrupted")
	case exitUsage:
		fmt.Fprintf(errOut, "everonce: %v\nRun \"%s --help\".\n", err, cmd.CommandPath())
	default:
		fmt.Fprintf(errOut, "everonce: %v\n", err)
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "everonce",
		Short:         "Operations that take effect once, however many times they arrive",
		Long:          rootLong,
		Example:       "  everonce demo\n  everonce keys list --store sqlite:payments.db --state abandoned\n  everonce keys explain --store postgres://localhost/shop --scope shop/payments --id payment-000007",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.AddCommand(a.demo(), a.demoService(), a.demoGateway(), a.version())
	return root
}

// run makes the function of a command.
func (a *app) run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd, args)
	}
}
