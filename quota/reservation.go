package quota

import (
	"time"

	"golang.org/x/time/rate"
)

// Reservation is the right to send one request of a certain size. Its methods are safe for concurrent use.
type Reservation struct {
	limiter *Limiter
	tokens  int
	state   state
	charge  uint64            // sequence number in the window, from sent on
	slot    *rate.Reservation // in the request pace; nil if that is unlimited
}

type state uint8

const (
	reserved  state = iota // counts without expiry
	sent                   // counts for a window
	settled                // counts for what is left of its window
	withdrawn              // cancelled before it was sent; does not count
	refused                // cancelled after it was sent; does not count
)

// Tokens returns the size that was reserved.
func (r *Reservation) Tokens() int { return r.tokens }

// Sent says that the request was written to the wire: its window runs from now. Calls after the first change nothing.
//
// If a request turns out to have been written after Cancel, as happens when a cancelled call races its own connection, the charge
// comes back, since the service has counted it; until it expires the window may hold more than the cap.
func (r *Reservation) Sent() {
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	t := r.limiter.now()
	r.send(t)
	r.limiter.dispatch(t)
}

// Settle says that the call is over. Its charge stays until its window ends; a reservation that was never marked Sent counts as sent
// now. It does nothing after Cancel, and nothing the second time.
func (r *Reservation) Settle() {
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	t := r.limiter.now()
	if r.state == reserved {
		r.send(t)
	}
	if r.state == sent {
		r.state = settled
	}
	r.limiter.dispatch(t)
}

// Cancel gives the charge back at once: the request was never sent, or the service refused it with 429 and did not count it. After a
// timeout or a lost connection the service may well have counted it: that is Settle. It does nothing after Settle, and nothing the
// second time.
//
// The place in the request pace is given back only if it has not come yet. One that has passed is lost: handing it out later would
// let two requests go where the service's short windows expect one.
func (r *Reservation) Cancel() {
	r.limiter.mu.Lock()
	defer r.limiter.mu.Unlock()
	t := r.limiter.now()
	r.cancel(t)
	r.limiter.dispatch(t)
}

func (r *Reservation) send(t time.Time) {
	l := r.limiter
	switch r.state {
	case reserved:
		l.window.release(r.tokens)
		r.state = sent
	case withdrawn:
		r.state = settled
	default:
		return
	}
	r.charge = l.window.send(t, r.tokens)
}

func (r *Reservation) cancel(t time.Time) {
	l := r.limiter
	switch r.state {
	case reserved:
		l.window.release(r.tokens)
		if r.slot != nil {
			r.slot.CancelAt(t)
		}
		r.state = withdrawn
	case sent:
		l.window.drop(r.charge)
		r.state = refused
	}
}
