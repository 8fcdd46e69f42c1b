package memstore

import "sync"

// pool hands out entries. They are made many at a time, and used again: thousands of small records would cost
// the collector more than all else that a store does. An entry that was given back keeps its memory.
type pool struct {
	mu   sync.Mutex
	free *entry  // given back, linked by next
	slab []entry // made, and never used
}

// slabSize is how many entries are made at a time: as many as fill 16 KiB, which is what the allocator rounds up to.
const slabSize = 70

func (p *pool) take() *entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.free; e != nil {
		p.free, e.next = e.next, nil
		return e
	}
	if len(p.slab) == 0 {
		p.slab = make([]entry, slabSize)
	}
	e := &p.slab[0]
	p.slab = p.slab[1:]
	return e
}

// give takes back an entry to which nothing points any more.
func (p *pool) give(e *entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*e = entry{next: p.free}
	p.free = e
}
