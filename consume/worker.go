package consume

import (
	"hash/maphash"
	"sync"
)

// worker handles deliveries, one or one batch at a time.
type worker struct {
	*server
	in <-chan Delivery
	// apart are deliveries of a batch that could not be handled together: each is handled by itself, before anything else.
	apart []Delivery
}

// begin runs a worker. A handler may end its goroutine: another one goes on with what it leaves.
func (s *server) begin(w *worker) {
	s.workers.Go(func() {
		ended := false
		defer func() {
			if !ended {
				s.begin(w)
			}
		}()
		w.run()
		ended = true
	})
}

// run returns at the end.
func (w *worker) run() {
	for {
		for len(w.apart) > 0 {
			d := w.apart[0]
			w.apart = w.apart[1:]
			w.handle(d)
		}
		if !w.gate.pass(w.ending) || !w.handleNext() {
			return
		}
	}
}

// handleNext handles what comes next. It reports false at the end.
func (w *worker) handleNext() bool {
	if w.Batch > 1 {
		ds := w.nextBatch(w.in)
		w.handleBatch(ds)
		return len(ds) > 0
	}
	d, ok := w.next(w.in)
	if ok {
		w.handle(d)
	}
	return ok
}

// laneAhead is how many messages may be in hand for a worker whose messages have an order. Without that one name of which
// several come in a row would hold up all the others.
const laneAhead = 16

// serveLanes gives each delivery to the worker of its name.
func (s *server) serveLanes(in <-chan Delivery) {
	lanes := make([]chan Delivery, s.Concurrency)
	for i := range lanes {
		lanes[i] = make(chan Delivery, max(laneAhead, s.Batch))
		s.begin(&worker{server: s, in: lanes[i]})
	}
	defer func() {
		for _, lane := range lanes {
			close(lane)
		}
	}()
	seed := maphash.MakeSeed()
	for {
		d, ok := s.next(in)
		if !ok {
			return
		}
		lane := lanes[maphash.String(seed, s.nameOf(d.Message()))%uint64(len(lanes))]
		select {
		case lane <- d:
		case <-s.ending.Done():
			return
		}
	}
}

// nameOf asks for the name of what must be handled in order, in a goroutine that Order may end: Serve goes on without a name.
func (s *server) nameOf(m *Message) (name string) {
	err := errReaderExited
	var asking sync.WaitGroup
	asking.Go(func() { name, err = safely(func(m *Message) (string, error) { return s.Order(m), nil }, m) })
	asking.Wait()
	if err != nil {
		s.Log.ErrorContext(s.work, "consume: Workers.Order failed", "consumer", s.c.name, "error", err)
	}
	return name
}
