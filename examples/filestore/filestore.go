//go:build unix

// Package filestore keeps every record in a separate file: acknowledged records survive a crash of the process and, if
// the disk keeps what was synced, a loss of power.
//
// It is a toy, written from docs/how-to/write-a-store.md alone, to show how small a store is: 64 callers wait for one
// lock and two syncs each. It passes the suite in driver/drivertest.
package filestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/everonce/everonce/driver"
	"github.com/everonce/everonce/driver/transition"
)

// Options are the options of a store. The zero value of each field is its default.
type Options struct {
	// Now is the store's clock. Processes that share a folder must have the same. Default [time.Now].
	Now func() time.Time
}

// Store keeps records in the files of a folder. It is safe for concurrent use, by several processes of one
// machine too.
type Store struct {
	dir  string
	now  func() time.Time
	lock *os.File      // locked between processes
	turn chan struct{} // holds one value while the lock is free in this process
}

var _ interface {
	driver.Store
	driver.HealthChecker
} = (*Store)(nil)

// Open makes a store of a folder. It creates the folder, but not the one around it.
func Open(dir string, opts *Options) (*Store, error) {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	if err := syncDir(filepath.Dir(filepath.Clean(dir))); err != nil { // the folder's name, even if another process created it
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // the folder is the caller's choice
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	s := &Store{dir: dir, now: time.Now, lock: lock, turn: make(chan struct{}, 1)}
	if opts != nil && opts.Now != nil {
		s.now = opts.Now
	}
	s.turn <- struct{}{}
	return s, nil
}

// Close frees the lock's file. Calls after it fail.
func (s *Store) Close() error { return s.lock.Close() }

// Claim begins an attempt: see [driver.Store].
func (s *Store) Claim(ctx context.Context, req driver.ClaimRequest) (res driver.ClaimResult, err error) {
	err = s.change(ctx, req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Claim(rec, req, now)
		return next, err
	})
	return res, err
}

// Complete saves a result: see [driver.Store].
func (s *Store) Complete(ctx context.Context, req driver.CompleteRequest) (res driver.CompleteResult, err error) {
	return res, s.change(ctx, req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		if rec == nil {
			return nil, driver.ErrLeaseLost
		}
		return transition.Complete(rec, req, now)
	})
}

// Release ends an attempt without a result: see [driver.Store].
func (s *Store) Release(ctx context.Context, req driver.ReleaseRequest) (res driver.ReleaseResult, err error) {
	err = s.change(ctx, req.ID, func(rec *driver.Record, now time.Time) (next *driver.Record, err error) {
		next, res, err = transition.Release(rec, req, now)
		return next, err
	})
	return res, err
}

// Renew extends a lease: see [driver.Store].
func (s *Store) Renew(ctx context.Context, req driver.RenewRequest) (res driver.RenewResult, err error) {
	return res, s.change(ctx, req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		if rec == nil {
			return nil, driver.ErrLeaseLost
		}
		return transition.Renew(rec, req, now)
	})
}

// SaveStep writes a step: see [driver.Store].
func (s *Store) SaveStep(ctx context.Context, req driver.SaveStepRequest) (res driver.SaveStepResult, err error) {
	return res, s.change(ctx, req.ID, func(rec *driver.Record, now time.Time) (*driver.Record, error) {
		if rec == nil {
			return nil, driver.ErrLeaseLost
		}
		return transition.SaveStep(rec, req, now)
	})
}

// Get reads a record. It needs no lock: a file is replaced as a whole.
func (s *Store) Get(ctx context.Context, req driver.GetRequest) (res driver.GetResult, err error) {
	if err := ctx.Err(); err != nil {
		return res, err
	}
	rec, err := s.read(s.file(req.ID))
	res.Now = s.now()
	if err != nil || rec == nil || rec.GoneAt(res.Now) {
		return res, err
	}
	res.Found, res.Record = true, *rec
	return res, nil
}

// defaultLimit bounds a purge that names no limit.
const defaultLimit = 1000

// Purge removes what time has let go: see [driver.Store]. It looks without the lock, and decides again, record by
// record, under it. It passes over records of which it cannot read the times: Health counts them.
func (s *Store) Purge(ctx context.Context, req driver.PurgeRequest) (res driver.PurgeResult, err error) {
	if req.Limit <= 0 {
		req.Limit = defaultLimit
	}
	ids, err := s.ids()
	if err != nil {
		return res, err
	}
	for _, id := range ids {
		rec, err := s.readToPurge(id)
		if err != nil {
			return res, err
		}
		if rec == nil || transition.Purge(rec, s.now()) == transition.Keep {
			continue
		}
		if res.Results+res.Records >= req.Limit {
			res.More = true
			break
		}
		if err := s.purge(ctx, id, &res); err != nil {
			return res, err
		}
	}
	return res, ctx.Err()
}

func (s *Store) purge(ctx context.Context, id driver.RecordID, res *driver.PurgeResult) error {
	unlock, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := s.readToPurge(id)
	if rec == nil || err != nil {
		return err
	}
	switch transition.Purge(rec, s.now()) {
	case transition.DropResult:
		if err = s.write(s.file(id), transition.Drop(rec)); err == nil {
			res.Results++
		}
	case transition.Remove:
		if err = os.Remove(s.file(id)); err == nil {
			err = syncDir(s.dir)
		}
		if err == nil {
			res.Records++
		}
	}
	return err
}

// readToPurge reads a record, and of a damaged one the times by which it goes. It returns nil where nothing can go.
func (s *Store) readToPurge(id driver.RecordID) (*driver.Record, error) {
	rec, err := s.read(s.file(id))
	if !errors.Is(err, driver.ErrCorruptRecord) {
		return rec, err
	}
	var times struct{ LeaseUntil, PurgeAt time.Time }
	data, err := os.ReadFile(s.file(id))
	if err != nil || json.Unmarshal(data, &times) != nil {
		return nil, nil //nolint:nilnil,nilerr // it is passed over
	}
	return &driver.Record{State: driver.StateClaimed, LeaseUntil: times.LeaseUntil, PurgeAt: times.PurgeAt}, nil // it may be a claim
}

// Health counts records: see [driver.HealthChecker].
func (s *Store) Health(ctx context.Context, _ driver.HealthRequest) (res driver.HealthResult, err error) {
	ids, err := s.ids()
	res.Now = s.now()
	res.Notes = []string{"Every write is synced to the disk before its answer."}
	for _, id := range ids {
		rec, err := s.read(s.file(id))
		switch {
		case errors.Is(err, driver.ErrCorruptRecord):
			res.Unreadable++
		case err != nil:
			return res, err
		case rec != nil:
			transition.Count(&res, rec)
		}
	}
	return res, errors.Join(err, ctx.Err())
}

// ids returns the IDs of the records.
func (s *Store) ids() (ids []driver.RecordID, err error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	for _, e := range entries {
		name, isRecord := strings.CutSuffix(e.Name(), extension)
		if id, err := driver.ParseRecordID(name); isRecord && err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// change is every method that writes: lock, read the record, take the time, call the function, write
// durably, unlock.
func (s *Store) change(ctx context.Context, id driver.RecordID, decide func(rec *driver.Record, now time.Time) (*driver.Record, error)) error {
	unlock, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	rec, err := s.read(s.file(id))
	if err != nil {
		return err
	}
	next, err := decide(rec, s.now())
	if err != nil || next == nil {
		return err
	}
	return s.write(s.file(id), next)
}

// acquire takes the folder's one lock: the callers of this process one by one, and then against other
// processes.
func (s *Store) acquire(ctx context.Context) (unlock func(), err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		err := syscall.Flock(int(s.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() {
				_ = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN) //nolint:errcheck // a lock that is held can be freed
				s.turn <- struct{}{}
			}, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			s.turn <- struct{}{}
			return nil, fmt.Errorf("filestore: lock: %w", err)
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			s.turn <- struct{}{}
			return nil, ctx.Err()
		}
	}
}

const extension = ".json"

func (s *Store) file(id driver.RecordID) string {
	return filepath.Join(s.dir, id.String()+extension)
}

// read returns nil where there is no record.
func (s *Store) read(file string) (*driver.Record, error) {
	data, err := os.ReadFile(file) //nolint:gosec // the name is a hash
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // no record is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("filestore: %w", err)
	}
	rec := new(driver.Record)
	if json.Unmarshal(data, rec) != nil || rec.State == 0 { // its error may quote what it has read
		return nil, fmt.Errorf("filestore: %w: %s", driver.ErrCorruptRecord, filepath.Base(file))
	}
	return rec, nil
}

// write replaces the file of a record, durably: first the new content, then its name.
func (s *Store) write(file string, rec *driver.Record) error {
	data, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("filestore: %w", err)
	}
	next := filepath.Join(s.dir, "next") // there is one writer
	if err := writeSynced(next, data); err != nil {
		return fmt.Errorf("filestore: %w", err)
	}
	if err := os.Rename(next, file); err != nil {
		return fmt.Errorf("filestore: %w", err)
	}
	return syncDir(s.dir)
}

func writeSynced(file string, data []byte) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600) //nolint:gosec // the name is ours
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes names durable.
func syncDir(dir string) error {
	d, err := os.Open(dir) //nolint:gosec // the folder is the caller's choice
	if err != nil {
		return fmt.Errorf("filestore: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("filestore: %w", err)
	}
	return nil
}
