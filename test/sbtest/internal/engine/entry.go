package engine

import (
	"time"

	"millrace/test/sbtest/internal/wire"
)

// State is where a message is in its life.
type State int

// The states. The first three are the values of x-opt-message-state.
const (
	Active State = iota
	Deferred
	Scheduled
	Gone
)

// String names the state.
func (s State) String() string {
	switch s {
	case Active:
		return "active"
	case Deferred:
		return "deferred"
	case Scheduled:
		return "scheduled"
	}
	return "gone"
}

// Entry is a message in a queue. The queue owns it: callers read it while they
// hold the queue, and change nothing.
type Entry struct {
	Seq         int64
	FirstSeq    int64 // before it was activated or dead-lettered; Seq if it never was
	ID          string
	Message     *wire.Message
	Enqueued    time.Time
	Expires     time.Time     // zero: never
	TTL         time.Duration // zero: none
	Later       time.Time     // of a scheduled message
	State       State
	Deliveries  uint32 // failed deliveries: the delivery-count of its header
	LockToken   wire.UUID
	LockedUntil time.Time // zero: not locked
	Source      string    // in a dead-letter queue: the queue it comes from

	at [slots]int
}

// Locked reports whether somebody holds the message.
func (e *Entry) Locked() bool { return !e.LockedUntil.IsZero() }

// Stats counts what a queue holds now and what happened to it so far.
type Stats struct {
	Active, Locked, Scheduled, Deferred int // now; Active without Locked

	Enqueued     int // accepted, scheduled ones when their time came
	Deliveries   int // handed out, including receive-and-delete
	Completed    int // including receive-and-delete
	Abandoned    int
	Released     int
	Deferrals    int
	Renewals     int
	LocksExpired int
	Dropped      int // expired by TTL and dropped
	DeadLettered int // moved to the dead-letter queue, for any reason
}
