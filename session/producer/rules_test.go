package producer_test

import (
	"errors"
	"math"
	"testing"

	"github.com/everonce/everonce/session/producer"
)

// stream is one stream of a table, whose positions are counted.
type stream struct {
	*producer.Table
	t    *testing.T
	next int64
}

func newStream(t *testing.T, window int) *stream {
	return &stream{Table: producer.NewTable(window), t: t}
}

func (s *stream) grant(name string) producer.Grant {
	s.t.Helper()
	g := s.Next(name)
	if err := s.Admit(name, g); err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *stream) send(b producer.Batch) producer.Decision {
	s.t.Helper()
	a, err := s.Apply("orders", &b, func() (int64, error) {
		s.next += int64(b.Count)
		return s.next - int64(b.Count), nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *stream) is(what string, got, want producer.Decision) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

func of(g producer.Grant, first int32, count int) producer.Batch {
	return producer.Batch{Producer: g.Producer, Epoch: g.Epoch, First: first, Count: count}
}

func refused(r producer.Refusal) producer.Decision { return producer.Decision{Err: r} }

// TestSequences: the next is appended, copies within the window are acknowledged where they are, and all else is
// refused.
func TestSequences(t *testing.T) {
	s := newStream(t, 2)
	other, g := s.grant(""), s.grant("")
	s.is("the first batch", s.send(of(g, 0, 2)), producer.Decision{})
	s.send(of(other, 0, 10))
	s.is("the second", s.send(of(g, 2, 3)), producer.Decision{Position: 12})
	s.is("a gap", s.send(of(g, 6, 1)), producer.Decision{Err: producer.ErrOutOfOrder, Expected: 5})
	s.is("a copy of the first", s.send(of(g, 0, 2)), producer.Decision{Duplicate: true})
	s.is("a copy of the second", s.send(of(g, 2, 3)), producer.Decision{Duplicate: true, Position: 12})
	for what, b := range map[string]producer.Batch{
		"the beginning of a batch": of(g, 2, 2), "the end of a batch": of(g, 3, 2), "two in one": of(g, 0, 5), "one that reaches beyond": of(g, 2, 9),
	} {
		s.is(what, s.send(b), refused(producer.ErrMismatch))
	}
	changed := of(g, 2, 3)
	changed.Sum = 1
	s.is("other records", s.send(changed), refused(producer.ErrMismatch))
	s.is("the third", s.send(of(g, 5, 1)), producer.Decision{Position: 15})
	s.is("a copy of what is not known any more", s.send(of(g, 0, 2)), refused(producer.ErrTooOld))
	s.is("one that reaches into the window", s.send(of(g, 0, 3)), refused(producer.ErrMismatch))
}

// TestEpochs: a later run begins at 0, and fences the earlier one; what was never granted is not accepted.
func TestEpochs(t *testing.T) {
	s := newStream(t, 0)
	early := s.grant("billing")
	s.send(of(early, 0, 1))
	late := s.grant("billing")
	if late.Producer != early.Producer || late.Epoch != early.Epoch+1 {
		t.Errorf("granted %+v after %+v", late, early)
	}
	s.is("the earlier run", s.send(of(early, 1, 1)), refused(producer.ErrFenced))
	s.is("its copy", s.send(of(early, 0, 1)), refused(producer.ErrFenced))
	s.is("the later run, in the middle", s.send(of(late, 1, 1)), refused(producer.ErrOutOfOrder))
	s.is("the later run", s.send(of(late, 0, 1)), producer.Decision{Position: 1})
	next := late
	next.Epoch++
	s.is("a run that was not granted", s.send(of(next, 0, 1)), refused(producer.ErrUnknown))

	free := s.grant("")
	s.send(of(free, 0, 1))
	raised := free
	raised.Epoch += 3
	s.is("an epoch that a producer without a name has raised", s.send(of(raised, 0, 1)), producer.Decision{Position: 3})
	s.is("its earlier one", s.send(of(free, 1, 1)), refused(producer.ErrFenced))
	for _, g := range []producer.Grant{{}, {Producer: free.Producer}, {Producer: 9, Epoch: -1}, {Producer: 9, Named: true}} {
		if err := s.Admit("", g); !errors.Is(err, producer.ErrGrant) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	if err := s.Admit("billing", producer.Grant{Producer: late.Producer, Epoch: producer.MaxEpoch, Named: true}); err != nil {
		t.Fatal(err)
	}
	if g := s.grant("billing"); g.Producer <= free.Producer || g.Epoch != 0 {
		t.Errorf("granted %+v after the last epoch", g)
	}
	s.is("the ID whose epochs are used up", s.send(of(late, 1, 1)), refused(producer.ErrForgotten))
}

// TestForgotten: what is forgotten is refused, whatever its number, and its ID and name give nothing of it back.
func TestForgotten(t *testing.T) {
	s := newStream(t, 0)
	g := s.grant("billing")
	s.send(of(g, 0, 1))
	s.Forget(g.Producer)
	s.Forget(g.Producer)
	for first := range int32(3) {
		s.is("a forgotten producer", s.send(of(g, first, 1)), refused(producer.ErrForgotten))
	}
	s.is("one to come", s.send(of(producer.Grant{Producer: g.Producer + 1}, 0, 1)), refused(producer.ErrUnknown))
	if again := s.grant("billing"); again.Producer == g.Producer || s.Len() != 1 {
		t.Errorf("granted %+v after %+v, %d producers", again, g, s.Len())
	}
}

// TestCopiesOfStates: what is appended to a state changes no copy of it.
func TestCopiesOfStates(t *testing.T) {
	var s producer.State
	g := producer.Grant{Producer: 1}
	for i := range int32(5) {
		b := of(g, i, 1)
		s.Append(&b, int64(10*i), 5)
	}
	before := s
	b := of(g, 5, 1)
	s.Append(&b, 50, 5)
	for i := range int32(5) {
		b := of(g, i, 1)
		if a := before.Check(&b); a != (producer.Decision{Duplicate: true, Position: int64(10 * i)}) {
			t.Errorf("%d: %+v", i, a)
		}
	}
}

// TestSequencesWrap: after 2³¹-1 comes 0, and what lies before is still told from what is to come.
func TestSequencesWrap(t *testing.T) {
	var s producer.State
	position := int64(0)
	add := func(b producer.Batch) {
		t.Helper()
		if a := s.Check(&b); a != (producer.Decision{}) {
			t.Fatalf("%+v: %+v", b, a)
		}
		s.Append(&b, position, 5)
		position += int64(b.Count)
	}
	g := producer.Grant{Producer: 1}
	sequence := int32(0)
	for range math.MaxInt32 / producer.MaxCount {
		add(of(g, sequence, producer.MaxCount))
		sequence += producer.MaxCount
	}
	add(of(g, sequence, int(math.MaxInt32-sequence-1)))
	across := of(g, math.MaxInt32-1, 5) // two before the end, and three from 0 on
	add(across)
	if _, next := s.Next(); next != 3 {
		t.Fatalf("the next is %d", next)
	}
	for what, tc := range map[string]struct {
		b    producer.Batch
		want producer.Decision
	}{
		"a copy of the one across": {across, producer.Decision{Duplicate: true, Position: position - 5}},
		"a part of it":             {of(g, 0, 3), refused(producer.ErrMismatch)},
		"a gap":                    {of(g, 4, 1), producer.Decision{Err: producer.ErrOutOfOrder, Expected: 3}},
		"far behind":               {of(g, math.MaxInt32-20*producer.MaxCount, 1), refused(producer.ErrTooOld)},
		"far ahead":                {of(g, math.MaxInt32/2-1, 1), producer.Decision{Err: producer.ErrOutOfOrder, Expected: 3}},
		"over the end once more":   {of(g, math.MaxInt32, 1), refused(producer.ErrMismatch)},
	} {
		if got := s.Check(&tc.b); got != tc.want {
			t.Errorf("%s: %+v, want %+v", what, got, tc.want)
		}
	}
	add(of(g, 3, 1))
}

// TestInvalidBatches: what cannot be is refused, and changes nothing.
func TestInvalidBatches(t *testing.T) {
	s := newStream(t, 0)
	g := s.grant("")
	for what, b := range map[string]producer.Batch{
		"empty": of(g, 0, 0), "a negative count": of(g, 0, -1), "a negative sequence": of(g, -1, 1), "a count over the limit": of(g, 0, producer.MaxCount+1),
		"the largest count": of(g, 0, math.MaxInt), "a negative epoch": of(producer.Grant{Producer: g.Producer, Epoch: -1}, 0, 1), "no producer": of(producer.Grant{}, 0, 1),
	} {
		s.is(what, s.send(b), refused(producer.ErrInvalid))
		if s.Append("orders", &b, 0) {
			t.Errorf("%s: appended", what)
		}
	}
	broken := errors.New("broken")
	b := of(g, 0, 1)
	if a, err := s.Apply("orders", &b, func() (int64, error) { return 0, broken }); !errors.Is(err, broken) || a != (producer.Decision{}) {
		t.Errorf("a write that fails: %+v, %v", a, err)
	}
	s.is("after all", s.send(b), producer.Decision{})
}
