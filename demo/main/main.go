// Command main is the demo alone, which builds faster than the program everonce: `make demo` runs it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/everonce/everonce/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := demo.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
