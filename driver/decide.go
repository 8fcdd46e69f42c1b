package driver

import "time"

// Decide returns the decision on a claim, given the record (or nil), the request, and the store's time. A store may
// decide natively, such as inside a statement; the conformance suite compares it with this function.
//
// DecideClaimed means a new record, a further attempt, or the repeated claim of a running attempt: the record then has
// the request's nonce.
func Decide(rec *Record, req ClaimRequest, now time.Time) Decision {
	settle := req.Take >= TakeToSettle
	if rec == nil || rec.GoneAt(now) {
		if settle {
			return DecideAbsent
		}
		return DecideClaimed
	}
	if rec.Format > FormatVersion {
		return DecideNewer
	}
	if req.Fingerprint.Conflicts(rec.Fingerprint) {
		return DecideMismatch
	}
	own := rec.Nonce == req.Nonce
	switch state := rec.StateAt(now); {
	case state == StateCompleted:
		return DecideReplay
	case state == StateTombstone:
		return DecideExpired
	case rec.State == StateClaimed && own:
		return DecideClaimed
	case own:
		return DecideEnded
	case state == StateReleased:
		if settle {
			return DecideReleased
		}
		return DecideClaimed
	case state == StateClaimed:
		if req.Take == TakeForced {
			return DecideClaimed
		}
		return DecideInProgress
	case settle || req.Take == TakeAbandoned && rec.UnknownStep == "":
		return DecideClaimed
	}
	return DecideAbandoned
}
