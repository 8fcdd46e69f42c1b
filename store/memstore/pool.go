package memstore

import (
	"math"
	"sync"
	"sync/atomic"
)

// pool holds the entries. They are made many at a time, and used again: thousands of small records would cost
// the collector more than all else that a store does. An entry is known by a number from 1 on, which takes half
// of a pointer and hides it from the collector. One that was given back keeps its memory.
type pool struct {
	mu    sync.Mutex
	free  []uint32 // given back
	made  uint32
	slabs atomic.Pointer[[]*slab] // in the order of their numbers; what is there once stays
}

// slab is as many entries as fill a size that the allocator has.
type slab [slabSize]entry

const slabSize = 64

// maxNumber is how many entries there can be.
const maxNumber = math.MaxUint32

// at returns an entry that was taken. It needs no lock.
func (p *pool) at(number uint32) *entry {
	n := number - 1
	return &(*p.slabs.Load())[n/slabSize][n%slabSize]
}

// take returns the number of an empty entry.
func (p *pool) take() uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free) - 1; n >= 0 {
		number := p.free[n]
		p.free = p.free[:n]
		return number
	}
	if p.made%slabSize == 0 {
		var slabs []*slab
		if old := p.slabs.Load(); old != nil {
			slabs = *old
		}
		slabs = append(slabs, new(slab))
		p.slabs.Store(&slabs)
	}
	p.made++
	return p.made
}

// give takes back an entry to which nothing points any more.
func (p *pool) give(number uint32) {
	*p.at(number) = entry{}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, number)
}
