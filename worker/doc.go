// Package worker takes messages off a Service Bus queue, runs one handler per message within a fixed number of slots,
// keeps each lock alive meanwhile, and settles every message by the verdict its handler returned.
//
// # A message's life
//
//	        ReceiveMessages(free slots)
//	queue ─────────────────────────────► slot ──► Handler(ctx, m) ──► Verdict ──► settlement
//	  ▲                                   │ lock renewed until the end   │
//	  │                                   │                              ├─ answered, refused, failed, skipped → complete
//	  │                                   │                              ├─ poison → dead-letter, with reason
//	  │                                   └───── wait, then again ◄──────┤  throttled, misconfigured,
//	  │                                                                  │  infrastructure with a known dependency
//	  └── abandon (+1 delivery) ◄────────────────────────────────────────┘  unexplained, panic, past Hold, drain
//
// A verdict that names a dependency holds the message in its slot, under its renewed lock, and runs the handler again
// after a pause: an outage costs time and no delivery count. Only what nobody can explain is abandoned.
//
// # What a handler must know
//
// The context of a handler ends early for two reasons, told apart by [context.Cause]: [ErrLockLost] (somebody else
// will get this message: stop, write nothing unconditional) and [ErrDraining] (this process is asked to go). A drain
// cuts only what has not started: once the handler has called [Message.Start] it may use the whole grace period, so
// that tokens already being paid for are not thrown away.
//
// # Stopping
//
// Cancel the context of [Worker.Run]: receiving ends, what has not started is abandoned, what has started may finish
// within [Options.DrainFor], then it is cut and abandoned too. Run returns when all of that is over.
package worker
