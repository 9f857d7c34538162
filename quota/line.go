package quota

import "container/heap"

// line holds those who wait, in the order of start-time fair queueing (Goyal, Vin, Cheng: "Start-time Fair Queueing", 1996).
//
// Every request has a start tag max(virtual time, finish tag of the tenant's previous request) and a finish tag of its start plus
// tokens/weight; the smallest start tag is served first, and virtual time is the start tag of what was served last. A tenant that was
// idle therefore starts level with the others, and one that used the deployment alone is not punished for it. Over any period in which
// two tenants both wait, what they get per weight differs by no more than one largest request of each.
//
// Only the first request of a tenant needs a tag, so a waiter that gives up leaves none behind.
type line struct {
	virtual  float64
	tenants  map[string]*tenant
	queue    tenantHeap
	waiting  int
	tokens   int
	arrivals uint64
	sweepAt  int
}

type tenant struct {
	name          string
	start         float64 // start tag of first; meaningless while nobody waits
	finish        float64 // finish tag of what was served last
	first, last   *waiter
	index         int // place in the heap, -1 while nobody waits
	waiting, held int // how many wait, and their tokens
}

type waiter struct {
	tenant     *tenant
	tokens     int
	arrival    uint64
	prev, next *waiter

	ready       chan struct{} // closed once reservation or err is set
	reservation *Reservation
	err         error
}

const (
	// minSweep is the number of tenants below which nobody looks for those that can be forgotten.
	minSweep = 64
	// rebaseAt keeps virtual time far below 2^53, where a float64 stops counting single tokens.
	rebaseAt = 1 << 40
)

func newLine() line { return line{tenants: make(map[string]*tenant), sweepAt: minSweep} }

// head returns who is next, or nil.
func (l *line) head() *waiter {
	if len(l.queue) == 0 {
		return nil
	}
	return l.queue[0].first
}

// push adds w at the end of its tenant's queue.
func (l *line) push(name string, w *waiter) {
	tn := l.tenant(name)
	l.arrivals++
	w.tenant, w.arrival = tn, l.arrivals
	l.waiting++
	l.tokens += w.tokens
	tn.waiting++
	tn.held += w.tokens
	if tn.first != nil {
		w.prev, tn.last.next = tn.last, w
		tn.last = w
		return
	}
	tn.first, tn.last = w, w
	tn.start = max(l.virtual, tn.finish)
	heap.Push(&l.queue, tn)
}

// remove takes w out, wherever it stands. Nothing of it remains.
func (l *line) remove(w *waiter) {
	tn := w.tenant
	l.waiting--
	l.tokens -= w.tokens
	tn.waiting--
	tn.held -= w.tokens
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		tn.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		tn.last = w.prev
	}
	switch {
	case tn.first == nil:
		heap.Remove(&l.queue, tn.index)
	case w.prev == nil:
		heap.Fix(&l.queue, tn.index)
	}
	w.prev, w.next = nil, nil
}

// serve records that the tenant is given tokens now. A waiter is removed first.
func (l *line) serve(name string, tokens int, weight float64) {
	tn := l.tenant(name)
	start := max(l.virtual, tn.finish)
	l.virtual = start
	tn.finish = start + float64(tokens)/weight
	if tn.first != nil {
		tn.start = tn.finish
		heap.Fix(&l.queue, tn.index)
	}
	if l.virtual > rebaseAt {
		l.rebase()
	}
}

// each calls f for everybody who waits. f may remove the waiter it is given.
func (l *line) each(f func(*waiter)) {
	for _, tn := range l.tenants {
		for w := tn.first; w != nil; {
			next := w.next
			f(w)
			w = next
		}
	}
}

func (l *line) tenant(name string) *tenant {
	if tn, ok := l.tenants[name]; ok {
		return tn
	}
	if len(l.tenants) >= l.sweepAt {
		l.sweep()
	}
	tn := &tenant{name: name, index: -1}
	l.tenants[name] = tn
	return tn
}

// sweep forgets the tenants that a newcomer cannot be told from. Doing so only when their number has doubled costs each newcomer a
// constant.
func (l *line) sweep() {
	for name, tn := range l.tenants {
		if tn.first == nil && tn.finish <= l.virtual {
			delete(l.tenants, name)
		}
	}
	l.sweepAt = max(minSweep, 2*len(l.tenants))
}

func (l *line) rebase() {
	for _, tn := range l.tenants {
		tn.start -= l.virtual
		tn.finish -= l.virtual
	}
	l.virtual = 0
	heap.Init(&l.queue)
}

// tenantHeap orders tenants by start tag, equals by arrival of their first waiter.
type tenantHeap []*tenant

func (h tenantHeap) Len() int { return len(h) }

func (h tenantHeap) Less(i, j int) bool {
	if h[i].start != h[j].start {
		return h[i].start < h[j].start
	}
	return h[i].first.arrival < h[j].first.arrival
}

func (h tenantHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *tenantHeap) Push(x any) {
	tn := x.(*tenant)
	tn.index = len(*h)
	*h = append(*h, tn)
}

func (h *tenantHeap) Pop() any {
	old := *h
	tn := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	tn.index = -1
	return tn
}
