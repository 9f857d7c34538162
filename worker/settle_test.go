package worker_test

import (
	"testing"
	"time"

	"millrace/test/sbtest"
	"millrace/worker"
)

// Trap: a settlement that goes unanswered, by link and by token.
func TestRunSurvivesLostSettlements(t *testing.T) {
	for _, tc := range []struct {
		name      string
		faults    []sbtest.Fault
		unsettled int64
	}{
		{"not applied on the link", []sbtest.Fault{{Point: sbtest.OnSettle}}, 0},
		{"not applied by token either", []sbtest.Fault{{Point: sbtest.OnSettle}, {Point: sbtest.OnRequest, Operation: "update-disposition"}}, 0},
		{"busy", []sbtest.Fault{{Point: sbtest.OnSettle, Condition: "com.microsoft:server-busy"}}, 0},
		{"internal error", []sbtest.Fault{{Point: sbtest.OnSettle, Condition: "amqp:internal-error"}}, 0},
		{"unavailable by token", []sbtest.Fault{{Point: sbtest.OnSettle}, {Point: sbtest.OnRequest, Operation: "update-disposition", Status: 503}}, 0},
		{"applied, and the answer lost", []sbtest.Fault{{Point: sbtest.OnSettleReply}}, 1},
		{"connection lost with the settlement", []sbtest.Fault{{Point: sbtest.OnSettle, Cut: true}}, 0},
		{"connection lost with the answer", []sbtest.Fault{{Point: sbtest.OnSettleReply, Cut: true}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				g := newGate()
				l := start(t, nil, g.handle, &worker.Options{Receivers: 1, Slots: 2})
				l.send("a")
				l.locked(1)
				for _, f := range tc.faults {
					l.broker.Inject(f)
				}
				close(g.open)
				l.await(empty)
				<-time.After(time.Minute)
				l.once(1)
				if n := l.worker.Counts().Unsettled.Load(); n != tc.unsettled {
					t.Errorf("unsettled = %d, want %d", n, tc.unsettled)
				}
			})
		})
	}
}

func TestRunGivesUpASettlementThatNeverWorks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := start(t, &sbtest.QueueOptions{LockDuration: time.Minute}, answered, &worker.Options{Receivers: 1, Slots: 2})
		l.broker.Inject(sbtest.Fault{Point: sbtest.OnSettle, Condition: "com.microsoft:server-busy"})
		remove := l.broker.Inject(sbtest.Fault{Point: sbtest.OnRequest, Operation: "update-disposition", Status: 500, Times: -1})
		l.send("a")
		<-time.After(50 * time.Second)
		remove()
		l.await(empty)
		s := l.broker.Stats(queue)
		if n := l.worker.Counts().Unsettled.Load(); n != 1 || s.Completed != 1 || s.Deliveries != 2 {
			t.Errorf("unsettled %d, completed %d, deliveries %d, want 1, 1, 2", n, s.Completed, s.Deliveries)
		}
	})
}
