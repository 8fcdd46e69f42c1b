package everonce

import "container/heap"

// beats is a heap of the attempts that are to beat, the earliest first. An attempt knows its index in it, so that its
// beat can be taken back.
type beats []*Attempt

// notDue is the index of an attempt that is not in the heap.
const notDue = -1

func (b *beats) add(a *Attempt)    { heap.Push(b, a) }
func (b *beats) remove(a *Attempt) { heap.Remove(b, int(a.beat.index)) }

func (b beats) Len() int           { return len(b) }
func (b beats) Less(i, j int) bool { return b[i].beat.due < b[j].beat.due }

func (b beats) Swap(i, j int) {
	b[i], b[j] = b[j], b[i]
	b[i].beat.index, b[j].beat.index = int32(i), int32(j) //nolint:gosec // as many as run at once
}

// Push is [heap.Interface]'s.
func (b *beats) Push(x any) {
	a := x.(*Attempt)
	a.beat.index = int32(len(*b)) //nolint:gosec // as many as run at once
	*b = append(*b, a)
}

// Pop is [heap.Interface]'s.
func (b *beats) Pop() any {
	last := len(*b) - 1
	a := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	a.beat.index = notDue
	return a
}
