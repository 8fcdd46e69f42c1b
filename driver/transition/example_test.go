package transition_test

import (
	"fmt"
	"sync"
	"time"

	"github.com/everonce/everonce"
	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// toyStore shows the parts of a store, without contexts and durability: each method locks, reads the record, takes
// the time, calls this package, and writes the record that it returns.
type toyStore struct {
	mu      sync.Mutex
	records map[driver.RecordID]*driver.Record // a record is replaced, never changed
	now     func() time.Time
}

func (s *toyStore) Claim(req driver.ClaimRequest) (driver.ClaimResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, res, err := transition.Claim(s.records[req.ID], req, s.now())
	s.write(req.ID, next)
	return res, err
}

func (s *toyStore) Complete(req driver.CompleteRequest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := transition.Complete(s.records[req.ID], req, s.now())
	s.write(req.ID, next)
	return err
}

func (s *toyStore) Purge() (records, results int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, rec := range s.records {
		switch transition.Purge(rec, s.now()) {
		case transition.Remove:
			delete(s.records, id)
			records++
		case transition.DropResult:
			s.write(id, transition.Drop(rec))
			results++
		}
	}
	return records, results
}

// write writes a record, if there is something to write.
func (s *toyStore) write(id driver.RecordID, next *driver.Record) {
	if next != nil {
		s.records[id] = next
	}
}

// A store is a lock, a place for records, and a clock. This package decides the rest.
func Example() {
	now := time.Date(2026, time.March, 1, 9, 0, 0, 0, time.UTC)
	s := &toyStore{records: map[driver.RecordID]*driver.Record{}, now: func() time.Time { return now }}

	key := everonce.Key{Scope: "charges", ID: "order-7"}
	claim := func(nonce driver.Nonce) driver.ClaimResult {
		res, err := s.Claim(driver.ClaimRequest{
			ID: key.RecordID(), Scope: key.Scope, Name: key.ID, Nonce: nonce, Lease: 30 * time.Second,
		})
		fmt.Println(res.Decision, err)
		return res
	}
	held := claim(driver.Nonce{1})
	claim(driver.Nonce{2}) // another attempt

	err := s.Complete(driver.CompleteRequest{
		ID: key.RecordID(), Token: held.Record.Token, Nonce: driver.Nonce{1},
		Result:   driver.SavedResult{Kind: driver.ResultValue, Codec: "raw", Data: []byte("receipt-1")},
		Lifetime: everonce.ForWeb(),
	})
	fmt.Println("completed:", err)
	fmt.Printf("with the result %s\n", claim(driver.Nonce{3}).Record.Result.Data)

	for range 3 {
		records, results := s.Purge()
		fmt.Println(now.Format(time.DateOnly), "removed:", records, "dropped:", results)
		now = now.Add(24 * time.Hour)
	}
	// Output:
	// claimed <nil>
	// in_progress <nil>
	// completed: <nil>
	// replay <nil>
	// with the result receipt-1
	// 2026-03-01 removed: 0 dropped: 0
	// 2026-03-02 removed: 0 dropped: 1
	// 2026-03-03 removed: 1 dropped: 0
}
