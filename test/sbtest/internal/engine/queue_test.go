package engine_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"millrace/test/sbtest/internal/engine"
	"millrace/test/sbtest/internal/wire"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds float64) time.Time {
	return t0.Add(time.Duration(seconds * float64(time.Second)))
}

func message(id string) *wire.Message {
	m, err := wire.ParseMessage(wire.AppendMessage(nil, &wire.Built{MessageID: id, Data: []byte(id)}))
	if err != nil {
		panic(err)
	}
	return m
}

func newQueue(cfg engine.Config) (q, dead *engine.Queue) {
	dead = engine.New(engine.Config{Name: "q/$DeadLetterQueue", LockDuration: cfg.LockDuration})
	cfg.Name, cfg.Dead = "q", dead
	return engine.New(cfg), dead
}

// TestQueueLife runs scripts of time, operation and what Take then gives.
func TestQueueLife(t *testing.T) {
	type step struct {
		at   float64
		op   string // take, complete, abandon, release, defer, dead, renew, advance; of the last message taken
		want string // id of what take returns, or the error of the others
	}
	lost := engine.ErrLockLost.Error()
	for _, tc := range []struct {
		name   string
		cfg    engine.Config
		ttl    uint32 // of message a, in ms
		steps  []step
		counts string // active locked deferred dead, dropped, expired locks
	}{
		{
			name:   "in order",
			steps:  []step{{0, "take", "a"}, {0, "complete", ""}, {0, "take", "b"}, {0, "complete", ""}, {0, "take", ""}},
			counts: "0 0 0 0 0 0",
		},
		{
			name:   "abandoned goes back to its place",
			steps:  []step{{0, "take", "a"}, {0, "abandon", ""}, {0, "take", "a"}, {0, "take", "b"}},
			counts: "0 2 0 0 0 0",
		},
		{
			name:   "lock ends exactly at its time without Advance",
			steps:  []step{{0, "take", "a"}, {9.999, "renew", ""}, {19.999, "complete", lost}, {19.999, "take", "a"}},
			counts: "1 1 0 0 0 1",
		},
		{
			name: "expiry counts and buries at the maximum",
			steps: []step{
				{0, "take", "a"}, {10, "take", "a"}, {20, "take", "a"}, {30, "take", "b"},
			},
			counts: "0 1 0 1 0 3",
		},
		{
			name:   "release never counts",
			steps:  []step{{0, "take", "a"}, {0, "release", ""}, {0, "take", "a"}, {0, "release", ""}, {0, "take", "a"}, {0, "release", ""}, {0, "take", "a"}},
			counts: "1 1 0 0 0 0",
		},
		{
			name:   "time to live does not touch a held message until it comes back",
			ttl:    5000,
			steps:  []step{{0, "take", "a"}, {6, "renew", ""}, {7, "abandon", ""}, {7, "take", "b"}},
			counts: "0 1 0 0 1 0",
		},
		{
			name:   "expired time to live goes to the dead-letter queue if asked",
			cfg:    engine.Config{DeadLetterOnExpiry: true},
			ttl:    5000,
			steps:  []step{{5, "take", "b"}},
			counts: "0 1 0 1 0 0",
		},
		{
			name:   "queue default beats a longer time to live",
			cfg:    engine.Config{DefaultTTL: 2 * time.Second},
			ttl:    5000,
			steps:  []step{{2, "take", ""}},
			counts: "0 0 0 0 2 0",
		},
		{
			name:   "deferred is out of line and outlives its time to live",
			ttl:    5000,
			steps:  []step{{0, "take", "a"}, {0, "defer", ""}, {9, "take", "b"}},
			counts: "0 1 1 0 0 0",
		},
		{
			name:   "dead letter",
			steps:  []step{{0, "take", "a"}, {0, "dead", ""}, {0, "dead", lost}, {0, "take", "b"}},
			counts: "0 1 0 1 0 0",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := tc.cfg
			cfg.LockDuration, cfg.MaxDeliveries = 10*time.Second, 3
			q, dead := newQueue(cfg)
			a := message("a")
			a.TTL, a.HasTTL = tc.ttl, tc.ttl != 0
			q.Enqueue(at(0), a)
			q.Enqueue(at(0), message("b"))
			var token wire.UUID
			for i, s := range tc.steps {
				var err error
				got := ""
				now := at(s.at)
				switch s.op {
				case "take":
					if e := q.Take(now); e != nil {
						got, token = e.ID, e.LockToken
					}
				case "complete":
					err = q.Complete(now, token)
				case "abandon":
					err = q.Abandon(now, token, nil)
				case "release":
					err = q.Release(now, token)
				case "defer":
					err = q.Defer(now, token, nil)
				case "dead":
					err = q.DeadLetter(now, token, "r", "d", nil)
				case "renew":
					_, err = q.Renew(now, token)
				}
				if err != nil {
					got = err.Error()
				}
				if got != s.want {
					t.Fatalf("step %d, %s at %vs = %q, want %q", i, s.op, s.at, got, s.want)
				}
			}
			st := q.Stats()
			counts := fmt.Sprint(st.Active, st.Locked, st.Deferred, dead.Stats().Active, st.Dropped, st.LocksExpired)
			if counts != tc.counts {
				t.Errorf("active locked deferred dead dropped expired = %s, want %s", counts, tc.counts)
			}
		})
	}
}

func TestQueueSchedule(t *testing.T) {
	q, _ := newQueue(engine.Config{LockDuration: time.Minute, MaxDeliveries: 10})
	later := message("later")
	later.Annotations = wire.Map{{
		Key: wire.Symbol(engine.ScheduledTime), Value: wire.Timestamp(at(60).UnixMilli()),
	}}
	later.TTL, later.HasTTL = 5000, true
	scheduled := q.Enqueue(at(0), later).Seq
	now := q.Enqueue(at(0), message("now"))
	if next, ok := q.Next(); !ok || !next.Equal(at(60)) {
		t.Errorf("Next() = %v, %v, want %v", next, ok, at(60))
	}
	if e := q.Take(at(59.9)); e != now {
		t.Errorf("Take before the time = %v, want the other", e)
	}
	if e := q.Take(at(59.9)); e != nil {
		t.Errorf("Take before the time = %v, want nil", e)
	}
	e := q.Take(at(60))
	if e == nil || e.ID != "later" || e.Seq == scheduled || e.FirstSeq != scheduled || !e.Enqueued.Equal(at(60)) {
		t.Fatalf("Take at the time = %+v", e)
	}
	if !e.Expires.Equal(at(65)) {
		t.Errorf("time to live ends %v, want %v: it runs from the scheduled time", e.Expires, at(65))
	}
	if err := q.Cancel(at(61), []int64{scheduled}); !errors.Is(err, engine.ErrNotFound) {
		t.Errorf("Cancel of an active message = %v, want %v", err, engine.ErrNotFound)
	}
}

func TestQueueOverwritesAnnotationsOfTheBroker(t *testing.T) {
	q, _ := newQueue(engine.Config{LockDuration: time.Minute, MaxDeliveries: 10})
	m := message("a")
	m.Annotations = wire.Map{
		{Key: wire.Symbol("x-opt-sequence-number"), Value: "7"},
		{Key: wire.Symbol("x-opt-partition-key"), Value: nil},
	}
	q.Enqueue(at(0), m)
	if n := len(m.Annotations); n != 1 || m.Annotations[0].Key != wire.Symbol("x-opt-partition-key") {
		t.Errorf("annotations = %v, want the partition key alone", m.Annotations)
	}
}

// Whatever happens in whatever order, every message is in exactly one state and
// is found by its number.
func TestQueueAccountsForEveryMessage(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		q, dead := newQueue(engine.Config{LockDuration: 10 * time.Second, MaxDeliveries: 5, DeadLetterOnExpiry: true})
		var held []wire.UUID
		sent, now := 0, 0.0
		for range 3000 {
			now += rnd.Float64()
			switch rnd.IntN(8) {
			case 0, 1, 2:
				m := message(fmt.Sprint(sent))
				if rnd.IntN(4) == 0 {
					m.TTL, m.HasTTL = uint32(rnd.IntN(60_000)), true
				}
				if rnd.IntN(4) == 0 {
					when := at(now + 30*rnd.Float64())
					m.Annotations = wire.Map{{Key: wire.Symbol(engine.ScheduledTime), Value: wire.Timestamp(when.UnixMilli())}}
				}
				q.Enqueue(at(now), m)
				sent++
			case 3, 4:
				if e := q.Take(at(now)); e != nil {
					held = append(held, e.LockToken)
				}
			case 5:
				all := q.Peek(at(now), 0, 1<<30)
				if len(all) > 0 {
					q.TakeDeferred(at(now), []int64{all[rnd.IntN(len(all))].Seq}, rnd.IntN(2) == 0)
				}
			default:
				if len(held) == 0 {
					continue
				}
				i := rnd.IntN(len(held))
				token := held[i]
				held = append(held[:i], held[i+1:]...)
				switch rnd.IntN(6) {
				case 0:
					q.Abandon(at(now), token, wire.Map{{Key: "n", Value: int32(1)}})
				case 1:
					q.Release(at(now), token)
				case 2:
					q.Defer(at(now), token, nil)
				case 3:
					q.DeadLetter(at(now), token, "r", "d", nil)
				case 4:
					q.Renew(at(now), token)
				case 5:
					q.Complete(at(now), token)
				}
			}
			st := q.Stats()
			kept := q.Peek(at(now), 0, 1<<30)
			lockedDeferred := 0
			last := int64(0)
			for _, e := range kept {
				if e.Seq <= last {
					t.Fatalf("seed %d: Peek out of order: %d after %d", seed, e.Seq, last)
				}
				last = e.Seq
				if e.State == engine.Deferred && e.Locked() {
					lockedDeferred++
				}
			}
			st = q.Stats()
			if got := st.Active + st.Locked + st.Scheduled + st.Deferred - lockedDeferred; got != len(kept) {
				t.Fatalf("seed %d: counts say %d messages (%+v), Peek %d", seed, got, st, len(kept))
			}
			gone := st.Completed + st.Dropped + st.DeadLettered
			if len(kept)+gone != sent || dead.Stats().Active != st.DeadLettered {
				t.Fatalf("seed %d: %d kept + %d gone of %d sent; %d dead", seed, len(kept), gone, sent, dead.Stats().Active)
			}
		}
	}
}

func BenchmarkQueueTakeComplete(b *testing.B) {
	q, _ := newQueue(engine.Config{LockDuration: time.Minute, MaxDeliveries: 10})
	m := message("a")
	for range 1000 {
		q.Enqueue(t0, m)
	}
	b.ReportAllocs()
	for b.Loop() {
		q.Enqueue(t0, m)
		e := q.Take(t0)
		if err := q.Complete(t0, e.LockToken); err != nil {
			b.Fatal(err)
		}
	}
}
