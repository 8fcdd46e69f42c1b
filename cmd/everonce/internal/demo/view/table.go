package view

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/everonce/everonce/cmd/everonce/internal/demo"
)

// Table writes both runs side by side, and what each mode promised.
func Table(out io.Writer, r *demo.Result) error {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(what string, without, with any) { fmt.Fprintf(w, "%-36s\t%v\t%v\t\n", what, without, with) }
	a, b := &r.Without, &r.With
	row("", "without", "with everonce")
	row("payments", a.Count.Operations, b.Count.Operations)
	row("deliveries to the service", a.Network.Deliveries, b.Network.Deliveries)
	row("kills (SIGKILL)", len(a.InFlight), len(b.InFlight))
	row("operations in flight at the kills", sum(a.InFlight), sum(b.InFlight))
	row("charges in the ledger", a.Count.Effects, b.Count.Effects)
	row("  charged more than once", a.Count.Doubled, b.Count.Doubled)
	row("  never charged", a.Count.Lost, b.Count.Lost)
	row("e-mails in the gateway's ledger", a.Count.Mails, b.Count.Mails)
	row("  sent more than once", a.Count.MailsDoubled, b.Count.MailsDoubled)
	if r.Config.ViaProxy {
		row("payments unknown, settled", "-", b.Settled.Unknown())
		row("  charged, mailed by the operator", "-", b.Settled.Finished)
	} else {
		row("  unknown, settled from that ledger", "-", b.Settled.Unknown())
	}
	row("answers replayed", "-", b.Network.Replayed)
	if err := w.Flush(); err != nil {
		return err
	}
	text := promises
	if r.Config.ViaProxy {
		text = promisesVia
	}
	_, err := fmt.Fprintf(out, text, r.Seconds, r.Config.Seed)
	return err
}

func sum(ns []int) int {
	total := 0
	for _, n := range ns {
		total += n
	}
	return total
}

const promises = `
What was promised:
  without   nothing: every delivery that reaches the service has its effect once more.
  charge    a step in the transaction of the database that also holds the record (transactional mode):
            exactly once, whatever crashes, as long as the database keeps what it has committed.
  e-mail    a step under the policy Refuse (guarded mode): at most once. Where nobody knew whether it
            was sent, it was not sent again, but settled by what the gateway's ledger says.
%.1f seconds, seed %d.
`

const promisesVia = `
What was promised:
  without   nothing: every delivery that reaches the service has its effect once more.
  proxy     under the policy Refuse (guarded mode), in front of a service that knows nothing of keys: at
            most once. Where nobody knew whether a payment was made, it was not made again, but settled
            by what the service's ledger says. What the service's own crash left half done, charged and
            without its mail, no proxy can know: the operator sent that mail.
%.1f seconds, seed %d.
`
