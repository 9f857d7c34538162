// Package quota keeps what one process sends to one model deployment inside its tokens-per-minute and requests-per-minute limits, without a rejected call.
//
// The service admits a request on an estimate made when it arrives (characters of the prompt, plus the output cap) and remembers
// that estimate for a minute. A [Limiter] keeps the same books: the occupancy of a sliding window a little longer than the
// service's, measured in the service's own estimate, not in tokens that were billed later.
//
//	Reserve ──► Sent ─────────────► Settle
//	   │          │                    the charge leaves the window one Window after Sent
//	   └─ Cancel ─┴─ Cancel            the charge leaves at once: never sent, or refused with 429
//
// # What is guaranteed
//
// While the cap of the [Share] does not change, the tokens of all requests whose Sent falls inside any one Window never add up to
// more than that cap, whatever the load, and however long a connection takes: a reservation that has not been sent counts without
// expiry, one that has been sent counts for a Window from that moment. A fixed minute is one particular sliding minute, so a service
// that counts by the clock is satisfied as well. If the cap shrinks, nothing is admitted until the occupancy has drained below it.
//
// Waiters are served by weighted fair queueing over tenants, in tokens, and in order of arrival inside a tenant. The limiter never
// idles while the first waiter of that order fits, and never lets a smaller one pass a first waiter that does not fit yet:
// otherwise large requests would wait for ever. Every waiter whose request fits the cap is admitted in the end.
//
// # What is not
//
// The service counts at arrival, the limiter at Sent. Two requests whose journeys differ by more than the window's margin (200 ms by
// default) may meet inside one of the service's minutes. Requests that other processes send to the same deployment are outside this
// count: they belong in a smaller cap. A charge is never reduced to what a call really used: whether the service gives that back is
// not documented, and a limiter that assumes so is refused calls when it does not.
package quota
