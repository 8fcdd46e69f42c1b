package demo

import (
	"errors"
	"fmt"
	"math"
)

// Report is the one object that `everonce demo --json` writes. Operations and Kills are of each run;
// Deliveries and the losses are the network's counts over both; what is in Without and With was counted
// in the ledgers.
type Report struct {
	Operations   int           `json:"operations"`
	Deliveries   int64         `json:"deliveries"`
	Kills        int           `json:"kills"`
	Via          string        `json:"via,omitempty"`
	RequestsLost int64         `json:"requests_lost"`
	AnswersLost  int64         `json:"answers_lost"`
	Without      ReportWithout `json:"without"`
	With         ReportWith    `json:"with"`
	Seconds      float64       `json:"seconds"`
}

// ReportWithout is the run without everonce. Effects counts charges, Doubled and Lost payments that were
// charged more than once, and never.
type ReportWithout struct {
	Effects      int `json:"effects"`
	Doubled      int `json:"doubled"`
	Lost         int `json:"lost"`
	Mails        int `json:"mails"`
	MailsDoubled int `json:"mails_doubled"`
}

// ReportWith is the run with everonce. MailsUnknown counts the mails of which nobody knew whether they had
// been sent, before they were settled. Via the proxy they are those of whole payments, which were unknown; HalfDone
// counts those of them that a crash had left charged and without a mail, which the operator sent.
type ReportWith struct {
	Effects      int   `json:"effects"`
	Doubled      int   `json:"doubled"`
	Lost         int   `json:"lost"`
	Replayed     int64 `json:"replayed"`
	Mails        int   `json:"mails"`
	MailsDoubled int   `json:"mails_doubled"`
	MailsUnknown int   `json:"mails_unknown"`
	HalfDone     *int  `json:"half_done,omitempty"` // only via the proxy
}

// Report returns the result as it is written.
func (r *Result) Report() Report {
	rep := Report{
		Operations: r.Config.Operations, Kills: len(r.With.InFlight),
		Deliveries:   r.Without.Network.Deliveries + r.With.Network.Deliveries,
		RequestsLost: r.Without.Network.RequestsLost + r.With.Network.RequestsLost,
		AnswersLost:  r.Without.Network.AnswersLost + r.With.Network.AnswersLost,
		Without: ReportWithout{
			Effects: r.Without.Count.Effects, Doubled: r.Without.Count.Doubled, Lost: r.Without.Count.Lost,
			Mails: r.Without.Count.Mails, MailsDoubled: r.Without.Count.MailsDoubled,
		},
		With: ReportWith{
			Effects: r.With.Count.Effects, Doubled: r.With.Count.Doubled, Lost: r.With.Count.Lost,
			Replayed: r.With.Network.Replayed,
			Mails:    r.With.Count.Mails, MailsDoubled: r.With.Count.MailsDoubled, MailsUnknown: r.With.Settled.Unknown(),
		},
		Seconds: math.Round(r.Seconds*1000) / 1000,
	}
	if r.Config.ViaProxy {
		rep.Via, rep.With.HalfDone = "proxy", &r.With.Settled.Finished
	}
	return rep
}

// ErrNothingShown: without everonce nothing was charged twice either, so that the demo shows nothing.
var ErrNothingShown = errors.New("the demo shows nothing")

// Verdict returns nil if the ledgers show what the demo promises, and otherwise what they show instead.
func (r *Result) Verdict() error {
	with, without := r.With.Count, r.Without.Count
	switch {
	case with.Doubled > 0 || with.Lost > 0:
		return fmt.Errorf("with everonce %d payments were charged more than once and %d never: this must not happen, please report it with the seed %d",
			with.Doubled, with.Lost, r.Config.Seed)
	case with.MailsDoubled > 0 || with.MailsLost > 0:
		return fmt.Errorf("with everonce %d payments have more than one mail and %d have none: this must not happen, please report it with the seed %d",
			with.MailsDoubled, with.MailsLost, r.Config.Seed)
	case without.Doubled == 0:
		return fmt.Errorf("%w: %d operations were too few for a payment to be charged twice without everonce; give more --operations, or another --seed",
			ErrNothingShown, r.Config.Operations)
	}
	return nil
}
