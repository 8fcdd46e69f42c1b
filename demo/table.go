package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table writes both runs side by side, and what each mode promised.
func (r *result) table(out io.Writer) error {
	fmt.Fprintln(out)
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	row := func(what string, without, with any) { fmt.Fprintf(w, "%-36s\t%v\t%v\t\n", what, without, with) }
	a, b := &r.without, &r.with
	row("", "without", "with everonce")
	row("payments", a.count.Operations, b.count.Operations)
	row("deliveries to the service", a.network.Deliveries, b.network.Deliveries)
	row("kills (SIGKILL)", len(a.inFlight), len(b.inFlight))
	row("operations in flight at the kills", sum(a.inFlight), sum(b.inFlight))
	row("charges in the ledger", a.count.Effects, b.count.Effects)
	row("  charged more than once", a.count.Doubled, b.count.Doubled)
	row("  never charged", a.count.Lost, b.count.Lost)
	row("e-mails in the gateway's ledger", a.count.Mails, b.count.Mails)
	row("  sent more than once", a.count.MailsDoubled, b.count.MailsDoubled)
	promises := promisesOfService
	if r.config.Via == ViaProxy {
		promises = promisesOfProxy
		row("payments unknown, settled", "-", b.settled.unknown())
		row("  charged, mailed by the operator", "-", b.settled.finished)
	} else {
		row("  unknown, settled from that ledger", "-", b.settled.unknown())
	}
	row("answers replayed", "-", b.network.Replayed)
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, promises, r.seconds, r.config.Seed)
	return err
}

func sum(ns []int) (total int) {
	for _, n := range ns {
		total += n
	}
	return total
}

const promisesOfService = `
Guarantees:
  without   nothing: every delivery that reaches the service has its effect once more.
  charge    a step in the transaction of the database that also holds the record (transactional mode):
            exactly once, whatever crashes, as long as the database keeps what it has committed.
  e-mail    a step under the policy Refuse (guarded mode): at most once. If it was unknown whether it
            was sent, it was not sent again, but settled by what the gateway's ledger says.
%.1f seconds, seed %d.
`

const promisesOfProxy = `
Guarantees:
  without   nothing: every delivery that reaches the service has its effect once more.
  proxy     under the policy Refuse (guarded mode), in front of a service without keys: at most once. If
            it was unknown whether a payment was made, it was not made again, but settled by the service's
            ledger. No proxy can detect a payment that the service's own crash left charged and without
            its mail: the operator sent that mail.
%.1f seconds, seed %d.
`
