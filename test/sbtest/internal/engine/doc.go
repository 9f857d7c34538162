// Package engine keeps the messages of one queue: who may have them, until when, and what becomes of them after.
//
// A [Queue] is a state machine without clock, lock or I/O: every method takes
// the time it happens at, and the caller serialises the calls to a queue and to
// the dead-letter queue behind it.
//
//	             Schedule                    Cancel
//	  Enqueue ──▶ scheduled ────────────────────────────▶ gone
//	     │            │ its time
//	     ▼            ▼
//	   active ◀───────┘            TTL
//	   │   ▲ ───────────────────────────────▶ dead-letter queue, or gone
//	   │   │ Abandon, lock expiry: count + 1, or to the dead-letter queue at the maximum
//	Take   │ Release: count as it was
//	   ▼   │
//	  locked ── Complete ─▶ gone
//	   │   └─── DeadLetter ─▶ dead-letter queue
//	   ▼ Defer
//	deferred ── TakeDeferred ─▶ locked (Abandon and expiry lead back to deferred)
//
// A message that returns goes back to its place by sequence number. A lock ends
// by the time passed in, whether or not Advance was called in between.
package engine
