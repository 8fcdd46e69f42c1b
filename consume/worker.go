package consume

import (
	"hash/maphash"
	"sync"
)

// worker handles deliveries, one or one batch at a time.
type worker struct {
	*server
	in <-chan Delivery
	// apart are deliveries of a batch that could not be handled together. Each is handled alone, before anything else.
	apart []Delivery
}

// begin runs a worker in a new goroutine. If a handler ends that goroutine, another one takes over.
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

// run handles deliveries until Serve ends.
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

// handleNext handles the next delivery or batch. It returns false at the end.
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

// laneAhead is how many messages a lane buffers. Without a buffer, several messages in a row with the same ordering
// key would block all other lanes.
const laneAhead = 16

// serveLanes gives each delivery to the worker of its ordering key.
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
		lane := lanes[maphash.String(seed, s.orderKey(d.Message()))%uint64(len(lanes))]
		select {
		case lane <- d:
		case <-s.ending.Done():
			return
		}
	}
}

// orderKey calls Order in a new goroutine, which Order may end. It returns "" if Order fails.
func (s *server) orderKey(m *Message) (name string) {
	err := errReaderExited
	var asking sync.WaitGroup
	asking.Go(func() { name, err = safely(func(m *Message) (string, error) { return s.Order(m), nil }, m) })
	asking.Wait()
	if err != nil {
		s.Log.ErrorContext(s.work, "consume: Workers.Order failed", "consumer", s.c.name, "error", err)
	}
	return name
}
