package e2e

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestFleetInABubble is the main promise at size: 20 workers, 10,000 messages, nothing going wrong but the speed of the
// network. Goroutines that stayed behind would fail the bubble by themselves.
func TestFleetInABubble(t *testing.T) {
	const workers, slots, links = 20, 16, 2
	messages := 10_000
	if raceDetector || testing.Short() {
		messages = 1_000
	}
	wall := time.Now()
	synctest.Test(t, func(t *testing.T) {
		const tpm = 400_000
		w := newWorld(t, tpm, time.Minute, 50*time.Millisecond)
		defer w.close()
		w.fleet(workers, slots)
		defer w.stopFleet()
		w.awaitLinks(workers * links)
		w.slowBus.Store(true)
		began := time.Now()
		claims := w.submit(messages)
		w.await(4 * time.Minute)
		took := time.Since(began)
		w.slowBus.Store(false)
		w.stopFleet()
		w.checkResults(claims)

		s, total := w.bus.Stats(queue), w.bus.Totals()
		if s.Completed != messages || s.Deliveries != messages || s.LocksExpired != 0 || s.Abandoned != 0 {
			t.Errorf("completed %d, deliveries %d, locks expired %d, abandoned %d, want %d, %d, 0, 0",
				s.Completed, s.Deliveries, s.LocksExpired, s.Abandoned, messages, messages)
		}
		for sum, n := range w.model.CallsPerInput() {
			if n != 1 {
				t.Errorf("calls for input %s = %d, want 1", sum[:12], n)
				break
			}
		}
		if s.Attaches != workers*links {
			t.Errorf("receiver links attached = %d, want %d", s.Attaches, workers*links)
		}
		if total.Connections != workers+1 { // and the sender's
			t.Errorf("connections = %d, want %d", total.Connections, workers+1)
		}
		stats := w.model.Stats()
		t.Logf("%d workers × %d messages: %.1f s virtual; peak TPM %d of %d; %d calls, %d throttled; %d links, %d connections",
			workers, messages, took.Seconds(), w.model.PeakMinute(deployment), tpm, stats.Calls, stats.Tokens429+stats.Requests429,
			s.Attaches, total.Connections)
	})
	t.Logf("%.1f s real", time.Since(wall).Seconds())
}
