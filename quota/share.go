package quota

import (
	"fmt"
	"time"
)

// Share says how much of a deployment's limit this replica may use.
type Share interface {
	// Cap returns how many tokens this replica may have in flight in any window, and until when that holds. The limiter asks again
	// on its first use after until; a zero until, or one that has passed, means that the cap holds for this moment only. A cap of
	// zero or less closes the gate: everything waits, whatever its size. Cap is called with the limiter's lock held: it returns
	// from memory, without blocking, and never calls the limiter.
	Cap(t time.Time) (tokens int, until time.Time)
}

// Static returns a share that never changes: the whole limit for one process, limit/maxReplicas for one of a fleet.
func Static(tokens int) Share { return static(tokens) }

type static int

// farAhead is a period after which even an unchanging cap is asked for again; it only has to be longer than any window.
const farAhead = 24 * time.Hour

func (s static) Cap(t time.Time) (int, time.Time) { return int(s), t.Add(farAhead) }

// TooLargeError reports a request that no wait can admit: it is larger than the cap in force.
type TooLargeError struct {
	// Tokens is the size of the request.
	Tokens int
	// Limit is the cap it was measured against. A caller that knows the deployment's whole limit compares Tokens with that one to
	// tell a request that can never be sent from one that a larger share could carry.
	Limit int
}

// Error says both figures.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("request of %d tokens is larger than the cap of %d", e.Tokens, e.Limit)
}
