package worker

import (
	"errors"
	"time"
)

// Kind is what became of one delivery. The set is closed; every kind has one [Settlement].
type Kind int

// The kinds. The zero Kind is Infrastructure, so that a handler that forgets to decide loses nothing.
const (
	Infrastructure Kind = iota // a dependency or this process failed; the document is innocent
	Answered                   // the model answered; the result is written
	Refused                    // a content filter or the model refused; that is the result, and it is written
	Failed                     // this document can never succeed; the result says why
	Skipped                    // nothing to do: not a document of ours to work on
	Poison                     // the message cannot be understood or may not be followed
	Throttled                  // the model's quota is used up for now
	Misconfigured              // identity, permission, deployment or parameter is wrong on our side
	Cut                        // drain or lost lock
)

// Kinds lists every kind in the order of the published table.
func Kinds() []Kind {
	return []Kind{Answered, Refused, Failed, Skipped, Poison, Throttled, Misconfigured, Infrastructure, Cut}
}

// String gives the kind's name in logs, metrics and the published table.
func (k Kind) String() string {
	switch k {
	case Infrastructure:
		return "infrastructure"
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case Failed:
		return "failed"
	case Skipped:
		return "skipped"
	case Poison:
		return "poison"
	case Throttled:
		return "throttled"
	case Misconfigured:
		return "misconfigured"
	case Cut:
		return "interrupted"
	}
	return "unknown"
}

// Settlement is what a verdict does to the message.
type Settlement string

// The settlements.
const (
	Complete   Settlement = "complete"    // removed from the queue
	DeadLetter Settlement = "dead-letter" // moved aside at once, with reason and description
	Hold       Settlement = "hold"        // kept in its slot under its renewed lock, handler run again after a pause
	Abandon    Settlement = "abandon"     // given back; the delivery count rises by one
)

// Settlement returns what the kind does to the message. Infrastructure is held while a dependency is named and the
// hold has not run out, else abandoned; an interrupted message is abandoned too, unless its lock is lost: then there
// is nothing left to settle.
func (k Kind) Settlement() Settlement {
	switch k {
	case Answered, Refused, Failed, Skipped:
		return Complete
	case Poison:
		return DeadLetter
	case Throttled, Misconfigured, Infrastructure:
		return Hold
	}
	return Abandon
}

// Verdict is a handler's decision. Build it with the functions below; the zero Verdict is an unexplained
// infrastructure failure and abandons the message.
type Verdict struct {
	Kind       Kind
	Outcome    string        // recorded outcome, for Answered, Refused and Failed
	Reason     string        // from the closed set of reasons, "" for a plain success
	Detail     string        // one short line for people; never document text, never a secret
	Dependency string        // what to wait for, for Throttled, Misconfigured and Infrastructure
	RetryAfter time.Duration // known wait, for Throttled; 0 if unknown
	Err        error         // what went wrong, redacted
}

// Done is the verdict of a message whose result is written: kind is Answered, Refused or Failed, outcome and reason
// are those of the result.
func Done(kind Kind, outcome, reason string) Verdict {
	return Verdict{Kind: kind, Outcome: outcome, Reason: reason}
}

// Skip completes a message that asks for nothing.
func Skip(reason string) Verdict { return Verdict{Kind: Skipped, Reason: reason} }

// Reject dead-letters a poison message with a reason and a short description.
func Reject(reason, detail string) Verdict {
	return Verdict{Kind: Poison, Reason: reason, Detail: detail}
}

// Throttle holds a message until dependency has quota again; after is how long that takes, 0 if unknown.
func Throttle(dependency string, after time.Duration, err error) Verdict {
	return Verdict{Kind: Throttled, Dependency: dependency, RetryAfter: after, Err: err}
}

// Misconfig holds a message until somebody has put dependency right, however long that takes.
func Misconfig(dependency string, err error) Verdict {
	return Verdict{Kind: Misconfigured, Dependency: dependency, Err: err}
}

// Outage holds a message while dependency is out of order; after is the wait it asked for, 0 if it named none.
// An empty dependency means that the failure is unexplained: the message is abandoned.
func Outage(dependency string, after time.Duration, err error) Verdict {
	return Verdict{Kind: Infrastructure, Dependency: dependency, RetryAfter: after, Err: err}
}

// Interrupted is the verdict of a handler that stopped because its context did; cause is [context.Cause] of it,
// [ErrDraining] or [ErrLockLost]. Any other cause is an unexplained infrastructure failure.
func Interrupted(cause error) Verdict {
	switch {
	case errors.Is(cause, ErrLockLost):
		return Verdict{Kind: Cut, Reason: reasonLockLost, Err: cause}
	case errors.Is(cause, ErrDraining):
		return Verdict{Kind: Cut, Reason: reasonDrain, Err: cause}
	}
	return Verdict{Err: cause}
}

// lockIsLost reports whether there is nothing left to settle.
func (v Verdict) lockIsLost() bool { return v.Kind == Cut && v.Reason == reasonLockLost }

// Reasons of an interruption; every other reason is the handler's.
const (
	reasonDrain    = "drain"
	reasonLockLost = "lock_lost"
)
