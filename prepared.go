package everonce

import "fmt"

// Prepare checks options once and combines them into one, for a route, say, whose calls all have the same. It includes
// the receiver's defaults, so it must be the first option of a call on this receiver; others may follow. The error wraps
// [ErrInvalidArgument], as that of such a call would. A Fingerprint is refused.
func (r *Receiver) Prepare(opts ...CallOption) (CallOption, error) {
	return r.prepareCall(opts, doOptions)
}

// Prepare is [Receiver.Prepare].
func (t *TxReceiver[Tx]) Prepare(opts ...CallOption) (CallOption, error) {
	return t.prepareCall(opts, transactOptions|doTxOptions)
}

func (r *core) prepareCall(opts []CallOption, allowed optionSet) (CallOption, error) {
	p := &prepared{by: r, call: r.defaults}
	if _, err := p.call.apply(opts, allowed&^optFingerprint); err != nil {
		return nil, err
	}
	return p, nil
}

// prepared is what some options add up to.
type prepared struct {
	by   *core
	call call
}

func (*prepared) applyCall(c *call) { c.given |= optPrepared }

// baseOf returns what a call's options are put over, and these.
func (r *core) baseOf(opts []CallOption) (*call, []CallOption, error) {
	if len(opts) == 0 {
		return &r.defaults, nil, nil
	}
	p, ok := opts[0].(*prepared)
	switch {
	case !ok:
		return &r.defaults, opts, nil
	case p.by != r:
		return nil, nil, fmt.Errorf("%w: the options were prepared by another receiver", ErrInvalidArgument)
	}
	return &p.call, opts[1:], nil
}
