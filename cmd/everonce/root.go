package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
)

const rootLong = `everonce is the receiver's half of at-least-once delivery: however many times an
operation arrives, it takes effect once.

Start with "everonce demo": it kills a payment service in the middle of its work, over a
network that loses a quarter of everything, and then counts the charges. It needs no
server.

"everonce proxy" stands in front of an HTTP service in any language and gives it
idempotency keys.

"everonce keys" is for operators: it shows what a store knows about an operation, says
what its next delivery would get and why, and settles unknown outcomes.
"everonce dlq" shows the dead letters of a RabbitMQ, Kafka, NATS or SQS queue, and puts them
back or discards them. "everonce outbox", "everonce inbox" and "everonce saga" do the same
with events, messages and sagas that were set aside; "everonce outbox relay" publishes
events. "everonce purge" removes what is past its retention.

Exit codes: 0 done, 1 failure, 2 usage, 4 not found, 5 conflict (a live claim),
6 store or broker unreachable, 130 interrupted.`

// app is one run of the program.
type app struct {
	in       io.Reader
	out, err io.Writer
	started  bool // a command runs: later errors are not usage errors
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
		fmt.Fprintf(errOut, "%s\nRun \"%s --help\".\n", problem(err), cmd.CommandPath())
	default:
		fmt.Fprintln(errOut, problem(err))
		if errors.Is(err, everonce.ErrSchema) && cmd.Name() != proxyName && cmd.Flag("store") != nil {
			fmt.Fprintln(errOut, lookedElsewhere)
		}
	}
	return code
}

// problem returns the text of an error, without the password of any URL in it, and without terminal control characters,
// which a server, a path or a flag may contain.
func problem(err error) string {
	text := storeurl.Redact(strings.TrimPrefix(err.Error(), "everonce: "))
	var b strings.Builder
	b.WriteString("everonce: ")
	for _, r := range text {
		if r == '\n' || r == '\t' || unicode.IsGraphic(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:     "everonce",
		Short:   "Operations that take effect once, however many times they arrive",
		Long:    rootLong,
		Example: "  everonce demo\n  everonce proxy --listen :8080 --upstream http://127.0.0.1:9000 --store sqlite:proxy.db\n  everonce keys list --store sqlite:payments.db --state abandoned\n  everonce keys explain --store postgres://localhost/shop --scope shop/payments --id payment-000007",
		Args:    aCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },

		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = readBuild().String() // for --version
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(a.demo(), a.proxy(), a.keys(), a.dlq())
	for _, p := range patterns {
		root.AddCommand(a.backlog(p))
	}
	root.AddCommand(a.purge(), a.schema(), a.version(), a.demoChild())
	ownCommands(root)
	return root
}

// run wraps the function of a command.
func (a *app) run(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd, args)
	}
}

// many returns a number of things in words: "1 event", "2 events".
func many(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
