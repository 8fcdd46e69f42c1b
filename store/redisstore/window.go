package redisstore

import (
	"bytes"
	"context"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/everonce/everonce"
)

const (
	// windowSize is how many IDs a scan keeps for a list: 8 MB of them, and twice as much while it collects them.
	windowSize = 1 << 18
	// windowFor is how long they are kept for the pages behind.
	windowFor = time.Minute
)

// window is a piece of a list: in their order, the first IDs behind one of the records that a request selects. SCAN knows no order, so each
// page would look at every key again.
type window struct {
	of    everonce.ListRequest // what it selects
	after everonce.RecordID
	ids   []everonce.RecordID
	whole bool // there are no others behind after
}

// windows keeps the one that was scanned last.
type windows struct {
	size int
	mu   sync.Mutex
	last *window
}

// window returns one that goes on behind an ID. That of a first page has this page alone, for it may be all that is asked for.
func (s *Store) window(ctx context.Context, req *everonce.ListRequest, after everonce.RecordID, limit int, now time.Time) (*window, error) {
	size := s.windows.size
	if after == (everonce.RecordID{}) {
		size = limit
	}
	s.windows.mu.Lock()
	w := s.windows.last
	s.windows.mu.Unlock()
	if w != nil && after != (everonce.RecordID{}) && w.covers(req, after) {
		return w, nil
	}
	w, err := s.scanWindow(ctx, req, after, size, now)
	if err != nil {
		return nil, err
	}
	s.windows.mu.Lock()
	defer s.windows.mu.Unlock()
	s.windows.last = w
	time.AfterFunc(windowFor, func() {
		s.windows.mu.Lock()
		defer s.windows.mu.Unlock()
		if s.windows.last == w {
			s.windows.last = nil
		}
	})
	return w, nil
}

func (s *Store) scanWindow(ctx context.Context, req *everonce.ListRequest, after everonce.RecordID, size int, now time.Time) (*window, error) {
	w := &window{of: selection(req), after: after, whole: true}
	_, err := s.scan(ctx, s.pattern(req.Scope, req.KeyHash), place{}, func(ids []everonce.RecordID) (bool, error) {
		ids = slices.DeleteFunc(ids, func(id everonce.RecordID) bool {
			return compare(id, after) <= 0 || !w.whole && compare(id, w.ids[size-1]) > 0 || req.KeyHash != (everonce.KeyHash{}) && id.Hash() != req.KeyHash
		})
		if req.Name != "" || len(req.States) > 0 || strings.Contains(string(req.Scope), "/") { // the record tells, and not its ID
			recs, err := s.records(ctx, req, ids, now)
			if err != nil {
				return false, err
			}
			ids = ids[:0]
			for i := range recs {
				ids = append(ids, recs[i].ID)
			}
		}
		if w.ids = append(w.ids, ids...); len(w.ids) >= 2*size {
			w.cut(size)
		}
		return true, nil
	})
	w.cut(size)
	return w, err
}

// cut puts the IDs into their order, each once, and leaves the first.
func (w *window) cut(size int) {
	slices.SortFunc(w.ids, compare)
	if w.ids = slices.Compact(w.ids); len(w.ids) > size {
		w.ids, w.whole = w.ids[:size], false
	}
}

// covers reports whether a page behind an ID begins in the window.
func (w *window) covers(req *everonce.ListRequest, after everonce.RecordID) bool {
	return compare(after, w.after) >= 0 && (w.whole || compare(after, w.ids[len(w.ids)-1]) < 0) && reflect.DeepEqual(w.of, selection(req))
}

// behind returns the IDs behind one.
func (w *window) behind(after everonce.RecordID) []everonce.RecordID {
	i, there := slices.BinarySearchFunc(w.ids, after, compare)
	if there {
		i++
	}
	return w.ids[i:]
}

// selection is a request without what is a page's own.
func selection(req *everonce.ListRequest) everonce.ListRequest {
	of := *req
	of.After, of.Limit, of.Steps = everonce.RecordID{}, 0, false
	return of
}

func compare(a, b everonce.RecordID) int { return bytes.Compare(a[:], b[:]) }
