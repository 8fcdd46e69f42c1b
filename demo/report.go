package demo

import (
	"errors"
	"fmt"
	"math"
)

// report is the object of --json. Operations and Kills are per run; Deliveries and the losses are the network's counts
// over both runs; Without and With are counted in the ledgers.
type report struct {
	Operations   int       `json:"operations"`
	Deliveries   int64     `json:"deliveries"`
	Kills        int       `json:"kills"`
	Via          string    `json:"via,omitempty"`
	RequestsLost int64     `json:"requests_lost"`
	AnswersLost  int64     `json:"answers_lost"`
	Without      reportRun `json:"without"`
	With         reportRun `json:"with"`
	Seconds      float64   `json:"seconds"`
}

// reportRun is a run. Effects counts charges, Doubled and Lost count payments that were charged more than once, and
// never. The pointers are set with everonce only. MailsUnknown counts the mails that were unknown before they were
// settled. Via the proxy it counts payments, and HalfDone counts those that a crash had left charged and without a
// mail, which the operator sent.
type reportRun struct {
	Effects      int    `json:"effects"`
	Doubled      int    `json:"doubled"`
	Lost         int    `json:"lost"`
	Replayed     *int64 `json:"replayed,omitempty"`
	Mails        int    `json:"mails"`
	MailsDoubled int    `json:"mails_doubled"`
	MailsUnknown *int   `json:"mails_unknown,omitempty"`
	HalfDone     *int   `json:"half_done,omitempty"` // only via the proxy
}

func (r *result) report() report {
	a, b := &r.without, &r.with
	rep := report{
		Operations: r.config.Operations, Kills: len(b.inFlight), Via: r.config.Via,
		Deliveries:   a.network.Deliveries + b.network.Deliveries,
		RequestsLost: a.network.RequestsLost + b.network.RequestsLost,
		AnswersLost:  a.network.AnswersLost + b.network.AnswersLost,
		Without:      a.report(), With: b.report(),
		Seconds: math.Round(r.seconds*1000) / 1000,
	}
	rep.With.Replayed, rep.With.MailsUnknown = &b.network.Replayed, new(b.settled.unknown())
	if r.config.Via == ViaProxy {
		rep.With.HalfDone = &b.settled.finished
	}
	return rep
}

func (o *outcome) report() reportRun {
	c := o.count
	return reportRun{Effects: c.Effects, Doubled: c.Doubled, Lost: c.Lost, Mails: c.Mails, MailsDoubled: c.MailsDoubled}
}

// errNothingShown: nothing was charged twice without everonce either, so the demo shows nothing.
var errNothingShown = errors.New("the demo shows nothing")

// verdict returns nil if the ledgers show what the demo promises, and otherwise what they show instead.
func (r *result) verdict() error {
	const mustNot = "this must not happen, please report it with the seed"
	with := r.with.count
	switch {
	case with.Doubled > 0 || with.Lost > 0:
		return fmt.Errorf("with everonce %d payments were charged more than once and %d never: %s %d", with.Doubled, with.Lost, mustNot, r.config.Seed)
	case with.MailsDoubled > 0 || with.MailsLost > 0:
		return fmt.Errorf("with everonce %d payments have more than one mail and %d have none: %s %d", with.MailsDoubled, with.MailsLost, mustNot, r.config.Seed)
	case r.without.count.Doubled == 0:
		return fmt.Errorf("%w: %d operations were too few for a payment to be charged twice without everonce; give more --operations, or another --seed",
			errNothingShown, r.config.Operations)
	}
	return nil
}
