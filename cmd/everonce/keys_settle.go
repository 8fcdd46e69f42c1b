package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/cmd/everonce/internal/duration"
	"github.com/everonce/everonce/cmd/everonce/internal/storeurl"
	"github.com/everonce/everonce/driver"
)

const settleLong = `settle records what you found out about an unknown operation, or one of its steps: its
effect happened (--done), or it did not and will not (--not-done).

With --done, --result is what duplicates get, as JSON; --failure instead says that the
operation was rejected permanently. With neither, duplicates learn that it was done and
that its result was not kept. With --not-done, the next delivery runs it again.

For an HTTP request, to everonce proxy or to httponce.Middleware, the result is the answer
that duplicates get, and --done needs it: --status, with --header and with --body or
--body-file; or --result, as JSON:
{"status":201,"headers":{"Location":["/payments/7"]},"body":"paid"}. Without a --body they
get the status and headers alone, and the marker "elided".

Settling a live claim is refused (exit code 5), because its attempt may be about to
finish. --force settles it anyway: the attempt goes on, but its answer is dropped.

Your finding is about one attempt. If you looked it up earlier, give its --token: if
another attempt has followed since, nothing is settled (exit code 5).

--lifetime is how long the result is kept: web (a day, remembered for another), queue (7 days,
remembered for 7 more), finance (90 days, remembered until a year has passed), or
retention+remember, like 48h+24h. Give the application's own lifetime, which the record
does not hold. The default is the longest of the three. It is too short if the application
remembers for more than a year: the key would be new again, and run again, too early.

settle asks before it writes, unless --yes is given. A line of JSON on standard error says
who settled what, and when.`

// settleFlags are the flags of settle.
type settleFlags struct {
	step             string
	done, notDone    bool
	result           string
	answer           answerFlags
	failure, message string
	token            int64
	force, yes       bool
	by, lifetime     string
}

// keysSettle settles an operation, or a step of it.
func (a *app) keysSettle(s *storeFlags) *cobra.Command {
	where := address{exact: true}
	f := &settleFlags{}
	cmd := &cobra.Command{
		Use:   "settle",
		Short: "Settle an operation, or a step, whose outcome is unknown",
		Long:  settleLong,
		Example: "  everonce keys settle --store sqlite:payments.db --scope shop/payments --id payment-000007 --step mail --done --result '\"mail-000012\"'\n" +
			"  everonce keys settle --store sqlite:proxy.db --record 5f0c… --done --status 201 --header 'Location: /payments/7' --body paid\n" +
			"  everonce keys settle --store sqlite:payments.db --record 5f0c… --not-done --yes",
		Args: noArgs,
		RunE: a.run(func(cmd *cobra.Command, _ []string) error {
			settlement, err := f.settlement(cmd)
			if err != nil {
				return err
			}
			answer, err := f.answer.read(cmd)
			if err != nil {
				return err
			}
			store, got, err := where.find(cmd, s)
			if err != nil {
				return err
			}
			defer store.Close() //nolint:errcheck // what was settled is durable
			if err := asAnswer(&got.Record, &settlement, answer); err != nil {
				return err
			}
			if err := a.confirm(f, &got.Record); err != nil {
				return err
			}
			if settlement.Token == 0 {
				settlement.Token = got.Record.Token // while the question waits for its answer, another attempt may follow
			}
			return a.settle(cmd.Context(), store, s, got, settlement)
		}),
	}
	where.flags(cmd)
	f.flags(cmd)
	return cmd
}

func (f *settleFlags) flags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.step, "step", "", "the step to settle (default: the whole operation)")
	flags.BoolVar(&f.done, "done", false, "it happened")
	flags.BoolVar(&f.notDone, "not-done", false, "it did not happen, and will not")
	flags.StringVar(&f.result, "result", "", "with --done: the result, as JSON; a step needs it")
	f.answer.flags(flags)
	flags.StringVar(&f.failure, "failure", "", "with --done: it was rejected permanently, with this code")
	flags.StringVar(&f.message, "message", "", "with --failure: a message for people")
	flags.StringVar(&f.lifetime, "lifetime", "finance", "how long the result is kept: web, queue, finance, or retention+remember")
	complete(cmd, "lifetime", "web", "queue", "finance")
	flags.Int64Var(&f.token, "token", 0, "the attempt that the verdict is about, as in list --json and show (default: the one found now)")
	flags.BoolVar(&f.force, "force", false, "settle even a live claim")
	flags.BoolVar(&f.yes, "yes", false, "do not ask")
	flags.StringVar(&f.by, "by", "", "who settles it (default: this user on this machine)")
}

// settlement reads the flags.
func (f *settleFlags) settlement(cmd *cobra.Command) (everonce.Settlement, error) {
	given := cmd.Flags().Changed
	s := everonce.Settlement{Verdict: everonce.SettleDone, Step: f.step, Token: driver.Token(f.token), Force: f.force, By: f.by}
	switch {
	case f.done == f.notDone:
		return s, usagef("give either --done or --not-done")
	case f.notDone && (given("result") || given("failure") || given("status")):
		return s, usagef("--not-done goes without --result, --status and --failure")
	case given("result") && given("failure"), given("result") && given("status"), given("status") && given("failure"):
		return s, usagef("give only one of --result, --status and --failure")
	case given("status") && f.step != "":
		return s, usagef("--status is the answer to a request, not the result of a step")
	case given("step") && f.step == "": // from an unset variable, say: it would settle the whole operation
		return s, usagef("--step is empty; leave it out to settle the whole operation")
	case f.done && f.step != "" && !given("result") && !given("failure"): // without a result, each later delivery would fail
		return s, usagef("the operation goes on with the result of its step: give --result, as JSON ('{}' or 'null' where it returns nothing), or --failure")
	case given("token") && f.token <= 0: // from an unset variable, say: it would settle any attempt
		return s, usagef("--token is %d, must be the token of an attempt", f.token)
	case given("message") && !given("failure"):
		return s, usagef("--message goes with --failure")
	case given("failure") && f.failure == "":
		return s, usagef("--failure needs a code, like card_declined")
	case given("result") && !json.Valid([]byte(f.result)):
		return s, usagef("--result is not JSON; a string needs its JSON quotes: '\"like this\"'")
	}
	var err error
	if s.Lifetime, err = parseLifetime(f.lifetime); err != nil {
		return s, err
	}
	if f.notDone {
		s.Verdict = everonce.SettleNotDone
	}
	if given("result") {
		s.Encoded = []byte(f.result)
	}
	if given("failure") {
		s.Failure = &everonce.PermanentError{Code: f.failure, Message: f.message}
	}
	if s.By == "" {
		s.By = whoAmI()
	}
	return s, nil
}

// parseLifetime reads the name of a preset, or two durations.
func parseLifetime(s string) (everonce.Lifetime, error) {
	switch s {
	case "web":
		return everonce.ForWeb(), nil
	case "queue":
		return everonce.ForQueue(), nil
	case "finance":
		return everonce.ForFinance(), nil
	}
	retention, remember, _ := strings.Cut(s, "+")
	var l everonce.Lifetime
	var err error
	if l.Retention, err = duration.Parse(retention); err == nil {
		l.Remember, err = duration.Parse(remember)
	}
	if err != nil || l.Retention == 0 {
		return l, usagef("--lifetime is %q, must be web, queue, finance, or two durations like 48h+24h or 90d+275d", s)
	}
	return l, nil
}

// whoAmI returns the names of the user and the machine.
func whoAmI() string {
	name := "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

// confirm asks whether to settle the record.
func (a *app) confirm(f *settleFlags, rec *driver.Record) error {
	what, verdict := "the operation", "done"
	if f.step != "" {
		what = fmt.Sprintf("the step %q of the operation", f.step)
	}
	if f.notDone {
		verdict = "not done"
	}
	return a.confirmed(f.yes, confirmation{
		question: fmt.Sprintf("Settle %s %q in %q as %s? This cannot be undone. Type yes: ", what, rec.Name, rec.Scope, verdict),
		instead:  "add --yes to go ahead",
		no:       errNotSettled,
	})
}

var errNotSettled = errors.New("nothing was settled")

// verdict is the JSON output of settle.
type verdict struct {
	Record  string `json:"record"`
	Key     string `json:"key_hash"`
	Step    string `json:"step,omitempty"`
	Verdict string `json:"verdict"`
	// State is the operation's state after the settlement.
	State string `json:"state"`
}

// settle settles the record, and logs who did it.
func (a *app) settle(ctx context.Context, store storeurl.Store, s *storeFlags, got driver.GetResult, with everonce.Settlement) error {
	rec := &got.Record
	v := verdict{Record: rec.ID.String(), Key: rec.ID.Short(), Step: with.Step, Verdict: "done"}
	if with.Verdict == everonce.SettleNotDone {
		v.Verdict = "not_done"
	}
	err := everonce.Settle(ctx, store, rec.ID, with)
	a.audit(ctx, s, got, &with, &v, err)
	if err != nil {
		return err
	}
	after, err := store.Get(ctx, driver.GetRequest{ID: rec.ID})
	if err != nil {
		return fmt.Errorf("it was settled, but its record could not be read afterwards: %w", err)
	}
	v.State = after.Record.StateAt(after.Now).String()
	return a.write(s.json, v, func() error {
		_, err := fmt.Fprintf(a.out, "settled as %s; the operation is %s\n", v.Verdict, v.State)
		return err
	})
}

// audit logs who settled what, with the key's hash: the key itself is never logged.
func (a *app) audit(ctx context.Context, s *storeFlags, got driver.GetResult, with *everonce.Settlement, v *verdict, err error) {
	log := slog.New(slog.NewJSONHandler(printable{a.err}, nil)).With(
		slog.String("by", with.By), slog.String("key", v.Key), slog.String("verdict", v.Verdict), slog.String("step", with.Step),
		slog.Bool("forced", with.Force), slog.String("found", got.Record.StateAt(got.Now).String()), slog.Int("attempt", got.Record.Attempt),
		slog.String("owner", got.Record.Owner), slog.String("store", storeurl.Name(s.url)))
	if err != nil {
		log.LogAttrs(ctx, slog.LevelError, "not settled", slog.String("error", storeurl.Redact(err.Error())))
		return
	}
	log.LogAttrs(ctx, slog.LevelInfo, "settled")
}
