package engine

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"millrace/test/sbtest/internal/wire"
)

// Errors of the operations that name a message.
var (
	ErrLockLost = errors.New("lock lost")
	ErrNotFound = errors.New("message not found")
	ErrSubQueue = errors.New("cannot dead-letter from a dead-letter queue")
)

// Reasons the service itself gives when it dead-letters.
const (
	ReasonMaxDelivery = "MaxDeliveryCountExceeded"
	ReasonExpired     = "TTLExpiredException"
)

// Config is how a queue behaves. A dead-letter queue has no Dead and ignores
// everything but Name and LockDuration.
type Config struct {
	Name               string
	LockDuration       time.Duration
	MaxDeliveries      int
	DefaultTTL         time.Duration // 0: none
	DeadLetterOnExpiry bool
	Dead               *Queue
}

// Queue holds messages in order of their sequence numbers.
type Queue struct {
	cfg   Config
	seq   int64
	all   []place // by seq, with holes
	holes int
	locks map[wire.UUID]*Entry
	ready heap
	ends  heap
	later heap
	ttl   heap
	bytes int
	stats Stats
}

// place is where a message stands by its number; entry is nil when it is gone.
type place struct {
	seq   int64
	entry *Entry
}

// New returns an empty queue.
func New(cfg Config) *Queue {
	bySeq := func(a, b *Entry) bool { return a.Seq < b.Seq }
	return &Queue{
		cfg:   cfg,
		locks: make(map[wire.UUID]*Entry),
		ready: heap{slot: inReady, less: bySeq},
		ends:  heap{slot: inLocks, less: func(a, b *Entry) bool { return a.LockedUntil.Before(b.LockedUntil) }},
		later: heap{slot: inLater, less: func(a, b *Entry) bool {
			if a.Later.Equal(b.Later) {
				return a.Seq < b.Seq
			}
			return a.Later.Before(b.Later)
		}},
		ttl: heap{slot: inTTL, less: func(a, b *Entry) bool { return a.Expires.Before(b.Expires) }},
	}
}

// Stats returns the counts as of the last call that changed them.
func (q *Queue) Stats() Stats {
	s := q.stats
	s.Active = q.ready.len()
	s.Scheduled = q.later.len()
	s.Locked = q.ends.len()
	return s
}

// Bytes is about the memory the messages take.
func (q *Queue) Bytes() int { return q.bytes }

// Enqueue adds a message at t, or schedules it if its annotations ask for a
// later time.
func (q *Queue) Enqueue(t time.Time, m *wire.Message) *Entry {
	at, _ := m.Annotations.Get(ScheduledTime).(wire.Timestamp)
	m.Annotations = slices.DeleteFunc(m.Annotations, func(p wire.Pair) bool { return owned(p.Key) })
	m.DeliveryAnnotations = slices.DeleteFunc(m.DeliveryAnnotations, func(p wire.Pair) bool { return owned(p.Key) })
	e := &Entry{ID: m.ID(), Message: m, Enqueued: t.Truncate(time.Millisecond), TTL: q.cfg.DefaultTTL}
	if own := time.Duration(m.TTL) * time.Millisecond; m.HasTTL && own > 0 && (e.TTL == 0 || own < e.TTL) {
		e.TTL = own
	}
	if when := time.UnixMilli(int64(at)); at != 0 && when.After(t) {
		q.add(e)
		e.State, e.Later = Scheduled, when
		q.later.push(e)
		return e
	}
	q.activate(t, e)
	return e
}

// ScheduledTime is the message annotation that asks for a later enqueue.
const ScheduledTime = "x-opt-scheduled-enqueue-time"

// owned reports whether an annotation is the broker's to set: what a client
// sends under these names is ignored.
func owned(key any) bool {
	name, _ := key.(wire.Symbol)
	switch name {
	case "x-opt-locked-until", "x-opt-sequence-number", "x-opt-enqueued-time", "x-opt-lock-token",
		"x-opt-message-state", "x-opt-enqueue-sequence-number":
		return true
	}
	return false
}

// add gives e a sequence number and a place.
func (q *Queue) add(e *Entry) {
	q.seq++
	e.Seq = q.seq
	if e.FirstSeq == 0 {
		e.FirstSeq = e.Seq
	}
	e.at = [slots]int{-1, -1, -1, -1}
	q.all = append(q.all, place{e.Seq, e})
	q.bytes += e.Message.Size()
}

func (q *Queue) activate(t time.Time, e *Entry) {
	q.add(e)
	e.State = Active
	if e.TTL > 0 {
		e.Expires = t.Add(e.TTL)
		q.ttl.push(e)
	}
	q.ready.push(e)
	q.stats.Enqueued++
}

// drop takes e out of the queue.
func (q *Queue) drop(e *Entry) {
	q.unlock(e)
	q.ready.remove(e)
	q.later.remove(e)
	q.ttl.remove(e)
	if e.State == Deferred {
		q.stats.Deferred--
	}
	e.State = Gone
	q.bytes -= e.Message.Size()
	q.all[q.find(e.Seq)].entry = nil
	q.holes++
	for len(q.all) > 0 && q.all[0].entry == nil {
		q.all = q.all[1:]
		q.holes--
	}
	if q.holes > 64 && q.holes > len(q.all)/2 {
		q.all = slices.DeleteFunc(q.all, func(p place) bool { return p.entry == nil })
		q.holes = 0
	}
}

// find is the first place with at least this sequence number.
func (q *Queue) find(seq int64) int {
	i, _ := slices.BinarySearchFunc(q.all, seq, func(p place, seq int64) int { return cmp.Compare(p.seq, seq) })
	return i
}

func (q *Queue) get(seq int64) *Entry {
	if i := q.find(seq); i < len(q.all) && q.all[i].seq == seq {
		return q.all[i].entry
	}
	return nil
}

// Cancel removes scheduled messages; if one of them is not scheduled, none.
func (q *Queue) Cancel(t time.Time, seqs []int64) error {
	q.Advance(t)
	for _, s := range seqs {
		if e := q.get(s); e == nil || e.State != Scheduled {
			return ErrNotFound
		}
	}
	for _, s := range seqs {
		if e := q.get(s); e != nil {
			q.drop(e)
		}
	}
	return nil
}

// Peek returns up to n messages, in any state, from a sequence number on.
func (q *Queue) Peek(t time.Time, from int64, n int) []*Entry {
	q.Advance(t)
	var found []*Entry
	for i := q.find(from); i < len(q.all) && len(found) < n; i++ {
		if e := q.all[i].entry; e != nil {
			found = append(found, e)
		}
	}
	return found
}

// Take locks the next message and returns it, nil if there is none.
func (q *Queue) Take(t time.Time) *Entry {
	q.Advance(t)
	e := q.ready.first()
	if e == nil {
		return nil
	}
	q.ready.remove(e)
	q.lock(t, e)
	return e
}

// TakeAndDelete removes the next message and returns it, nil if there is none.
func (q *Queue) TakeAndDelete(t time.Time) *Entry {
	q.Advance(t)
	e := q.ready.first()
	if e != nil {
		q.stats.Deliveries++
		q.stats.Completed++
		q.drop(e)
	}
	return e
}

// TakeDeferred locks, or with remove takes out, deferred messages by number. If
// one of them is not deferred or is locked, nothing happens.
func (q *Queue) TakeDeferred(t time.Time, seqs []int64, remove bool) ([]*Entry, error) {
	q.Advance(t)
	var found []*Entry
	for _, s := range seqs {
		e := q.get(s)
		if e == nil || e.State != Deferred || e.Locked() || slices.Contains(found, e) {
			return nil, ErrNotFound
		}
		found = append(found, e)
	}
	for _, e := range found {
		if !remove {
			q.lock(t, e)
			continue
		}
		q.stats.Deliveries++
		q.stats.Completed++
		q.drop(e)
	}
	return found, nil
}

func (q *Queue) lock(t time.Time, e *Entry) {
	var u wire.UUID
	for i := 0; i < 16; i += 8 {
		r := rand.Uint64()
		for j := range 8 {
			u[i+j] = byte(r >> (8 * j))
		}
	}
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // a random UUID, version 4
	e.LockToken = u
	e.LockedUntil = q.until(t)
	q.locks[u] = e
	q.ends.push(e)
	q.stats.Deliveries++
}

// until is when a lock taken or renewed at t ends: AMQP timestamps are whole
// milliseconds, and the holder is told exactly this time.
func (q *Queue) until(t time.Time) time.Time {
	return t.Add(q.cfg.LockDuration).Truncate(time.Millisecond)
}

func (q *Queue) unlock(e *Entry) {
	if !e.Locked() {
		return
	}
	delete(q.locks, e.LockToken)
	q.ends.remove(e)
	e.LockedUntil = time.Time{}
}

// held is the message under a lock that is still valid at t.
func (q *Queue) held(t time.Time, token wire.UUID) (*Entry, error) {
	q.Advance(t)
	e := q.locks[token]
	if e == nil {
		return nil, ErrLockLost
	}
	return e, nil
}

// Renew prolongs a lock by the lock duration from t.
func (q *Queue) Renew(t time.Time, token wire.UUID) (time.Time, error) {
	e, err := q.held(t, token)
	if err != nil {
		return time.Time{}, err
	}
	e.LockedUntil = q.until(t)
	q.ends.fix(e)
	q.stats.Renewals++
	return e.LockedUntil, nil
}

// Complete removes the message.
func (q *Queue) Complete(t time.Time, token wire.UUID) error {
	e, err := q.held(t, token)
	if err != nil {
		return err
	}
	q.stats.Completed++
	q.drop(e)
	return nil
}

// Abandon gives the message back, changed by props, with its count raised; at
// the maximum it goes to the dead-letter queue.
func (q *Queue) Abandon(t time.Time, token wire.UUID, props wire.Map) error {
	e, err := q.held(t, token)
	if err != nil {
		return err
	}
	q.merge(e, props)
	q.stats.Abandoned++
	q.unlock(e)
	q.failed(t, e)
	return nil
}

// Release gives the message back as if it had never been delivered.
func (q *Queue) Release(t time.Time, token wire.UUID) error {
	e, err := q.held(t, token)
	if err != nil {
		return err
	}
	q.stats.Released++
	q.unlock(e)
	q.back(t, e)
	return nil
}

// Defer sets the message aside, changed by props, until it is asked for by number.
func (q *Queue) Defer(t time.Time, token wire.UUID, props wire.Map) error {
	e, err := q.held(t, token)
	if err != nil {
		return err
	}
	q.merge(e, props)
	q.unlock(e)
	if e.State != Deferred {
		q.ttl.remove(e) // a deferred message is not purged
		e.State = Deferred
		q.stats.Deferred++
	}
	q.stats.Deferrals++
	return nil
}

// DeadLetter moves the message, changed by props, to the dead-letter queue.
func (q *Queue) DeadLetter(t time.Time, token wire.UUID, reason, description string, props wire.Map) error {
	e, err := q.held(t, token)
	if err != nil {
		return err
	}
	if q.cfg.Dead == nil {
		return ErrSubQueue
	}
	q.merge(e, props)
	q.bury(t, e, reason, description)
	return nil
}

func (q *Queue) merge(e *Entry, props wire.Map) {
	q.bytes -= e.Message.Size()
	e.Message.MergeAppProperties(props)
	q.bytes += e.Message.Size()
}

// failed counts a delivery that came back.
func (q *Queue) failed(t time.Time, e *Entry) {
	if q.cfg.Dead == nil { // no counting in a dead-letter queue
		q.back(t, e)
		return
	}
	e.Deliveries++
	if int(e.Deliveries) >= q.cfg.MaxDeliveries {
		q.bury(t, e, ReasonMaxDelivery, "Message could not be consumed after "+
			strconv.Itoa(q.cfg.MaxDeliveries)+" delivery attempts.")
		return
	}
	q.back(t, e)
}

// back puts an unlocked message where it belongs.
func (q *Queue) back(t time.Time, e *Entry) {
	switch {
	case e.State == Deferred:
	case !e.Expires.IsZero() && !e.Expires.After(t):
		q.expire(t, e)
	default:
		q.ready.push(e)
	}
}

func (q *Queue) expire(t time.Time, e *Entry) {
	if q.cfg.DeadLetterOnExpiry && q.cfg.Dead != nil {
		q.bury(t, e, ReasonExpired, "The message expired and was dead lettered.")
		return
	}
	q.stats.Dropped++
	q.drop(e)
}

// bury moves e to the dead-letter queue, where it gets a new sequence number and
// keeps its enqueued time and its count.
func (q *Queue) bury(t time.Time, e *Entry, reason, description string) {
	q.drop(e)
	q.stats.DeadLettered++
	set := wire.Map{}
	if reason != "" {
		set = set.Set("DeadLetterReason", reason)
	}
	if description != "" {
		set = set.Set("DeadLetterErrorDescription", description)
	}
	e.Message.MergeAppProperties(set)
	e.Message.Annotations = slices.DeleteFunc(e.Message.Annotations, func(p wire.Pair) bool {
		return p.Key == wire.Symbol("x-opt-deadletter-source") // the broker's from here on
	})
	moved := &Entry{
		ID: e.ID, FirstSeq: e.FirstSeq, Message: e.Message, Enqueued: e.Enqueued,
		Deliveries: e.Deliveries, Source: q.cfg.Name,
	}
	q.cfg.Dead.activate(t, moved)
}

// Advance applies everything that time alone brings up to and including t and
// reports whether anything changed.
func (q *Queue) Advance(t time.Time) (changed bool) {
	for e := q.ends.first(); e != nil && !e.LockedUntil.After(t); e = q.ends.first() {
		q.unlock(e)
		q.stats.LocksExpired++
		q.failed(t, e)
		changed = true
	}
	for e := q.later.first(); e != nil && !e.Later.After(t); e = q.later.first() {
		q.drop(e)
		e.Enqueued = e.Later
		q.activate(t, e) // with a new number, as if enqueued now
		changed = true
	}
	for e := q.ttl.first(); e != nil && !e.Expires.After(t); e = q.ttl.first() {
		if e.Locked() {
			q.ttl.remove(e) // applied when it comes back
			continue
		}
		q.expire(t, e)
		changed = true
	}
	return changed
}

// Next is when Advance has something to do, if ever.
func (q *Queue) Next() (at time.Time, ok bool) {
	sooner := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	if e := q.ends.first(); e != nil {
		sooner(e.LockedUntil)
	}
	if e := q.later.first(); e != nil {
		sooner(e.Later)
	}
	if e := q.ttl.first(); e != nil {
		sooner(e.Expires)
	}
	return at, ok
}

// Ready is how many messages Take could return now.
func (q *Queue) Ready() int { return q.ready.len() }
