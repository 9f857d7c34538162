package engine

// index is where an entry stands in each heap of its queue, so that it can leave
// one in O(log n); -1 is "not in it".
type slot int

const (
	inReady slot = iota // by sequence number
	inLocks             // by the end of the lock
	inLater             // by the scheduled time
	inTTL               // by the end of the time to live
	slots
)

// heap is a binary heap of entries under one order.
type heap struct {
	slot  slot
	less  func(a, b *Entry) bool
	items []*Entry
}

func (h *heap) len() int { return len(h.items) }

// first is the least entry, nil if the heap is empty.
func (h *heap) first() *Entry {
	if len(h.items) == 0 {
		return nil
	}
	return h.items[0]
}

func (h *heap) push(e *Entry) {
	e.at[h.slot] = len(h.items)
	h.items = append(h.items, e)
	h.up(len(h.items) - 1)
}

// remove takes e out if it is in.
func (h *heap) remove(e *Entry) {
	i := e.at[h.slot]
	if i < 0 {
		return
	}
	last := len(h.items) - 1
	h.swap(i, last)
	h.items[last] = nil
	h.items = h.items[:last]
	e.at[h.slot] = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

// fix restores the order after e's key changed.
func (h *heap) fix(e *Entry) {
	i := e.at[h.slot]
	h.down(i)
	h.up(i)
}

func (h *heap) swap(i, j int) {
	h.items[i], h.items[j] = h.items[j], h.items[i]
	h.items[i].at[h.slot] = i
	h.items[j].at[h.slot] = j
}

func (h *heap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(h.items[i], h.items[parent]) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h *heap) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.items) {
			return
		}
		if right := child + 1; right < len(h.items) && h.less(h.items[right], h.items[child]) {
			child = right
		}
		if !h.less(h.items[child], h.items[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}
