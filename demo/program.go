package demo

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"

	"github.com/everonce/everonce/demo/internal/process"
	"github.com/everonce/everonce/demo/internal/shop"
)

// The exit codes of [Main].
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// Main is a program that is the demo and nothing else, and returns its exit code. The end of ctx interrupts it.
func Main(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) > 0 && args[0] == ChildCommand {
		return exitCode(ctx, Serve(ctx, args[1:], in, out), errOut)
	}
	var c Config
	f := c.Flags()
	f.SetOutput(errOut)
	f.Usage = func() {
		fmt.Fprintf(errOut, "%s\n\nFlags:\n", Long)
		f.PrintDefaults()
	}
	err := f.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil: // which was written, with the help
		return exitUsage
	case f.NArg() > 0:
		err = fmt.Errorf("it takes flags and no other arguments, but was given %d", f.NArg())
	default:
		err = c.Check()
	}
	if err != nil {
		fmt.Fprintln(errOut, "demo:", err)
		return exitUsage
	}
	return exitCode(ctx, Run(ctx, c, out, errOut), errOut)
}

func exitCode(ctx context.Context, err error, errOut io.Writer) int {
	switch {
	case err == nil:
		return 0
	case ctx.Err() != nil:
		fmt.Fprintln(errOut, "demo: interrupted")
		return exitInterrupted
	}
	fmt.Fprintln(errOut, "demo:", err)
	return exitFailure
}

// ChildCommand is the first argument when the demo starts this program again, as a separate process.
const ChildCommand = "demo-child"

// The roles of a child.
const (
	roleGateway = "e-mail gateway"
	roleWithout = "payment service without everonce"
	roleWith    = "payment service with everonce"
	roleProxy   = "proxy"
)

// roles open what a child serves: its own file, and the address of whom it calls.
var roles = map[string]func(ctx context.Context, file, upstream string) (http.Handler, io.Closer, error){
	roleGateway: func(_ context.Context, ledger, _ string) (http.Handler, io.Closer, error) {
		g, err := shop.OpenGateway(ledger)
		return g, g, err
	},
	roleWithout: shop.OpenWithout,
	roleWith:    shop.OpenWith,
	roleProxy:   shop.OpenProxy,
}

// Serve is the life of a child, with the arguments after [ChildCommand]: it announces its address on out, and ends
// when in does.
func Serve(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	signal.Ignore(os.Interrupt) // Ctrl-C is for the demo, which ends its children
	if len(args) != 4 || roles[args[0]] == nil {
		return errors.New("only the demo starts this command")
	}
	handler, file, err := roles[args[0]](ctx, args[1], args[2])
	if err != nil {
		return err
	}
	return errors.Join(process.Serve(ctx, in, out, args[3], handler), file.Close())
}

// start starts a child. It listens anywhere, or where it did before it was killed.
func (r *run) start(ctx context.Context, role, file string, upstream, before *process.Child) (*process.Child, error) {
	calls, listen := "", process.Anywhere
	if upstream != nil {
		calls = upstream.Addr()
	}
	if before != nil {
		listen = before.Addr()
	}
	return process.Start(ctx, "the "+role, r.fail, ChildCommand, role, file, calls, listen)
}
