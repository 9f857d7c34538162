package main

import (
	"bytes"
	"testing"
	"time"

	"millrace/quota"
	"millrace/test/modeltest"
)

func TestTrafficCountsAWindow(t *testing.T) {
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	var calls traffic
	for _, e := range []modeltest.Event{
		{Arrival: start, Charge: 100, Admitted: true},
		{Arrival: start.Add(10 * time.Second), Charge: 50, Admitted: true},
		{Arrival: start.Add(20 * time.Second), Charge: 999}, // refused
	} {
		calls.observe(e)
	}
	for _, tc := range []struct {
		after  time.Duration
		tokens int
		next   time.Duration
	}{
		{30 * time.Second, 150, quota.DefaultWindow - 30*time.Second},
		{quota.DefaultWindow, 50, 10 * time.Second},
		{quota.DefaultWindow + 10*time.Second, 0, 0},
	} {
		finished, tokens, next := calls.at(start.Add(tc.after))
		if finished != 2 || tokens != tc.tokens || next != tc.next {
			t.Errorf("at(%s) = %d, %d, %s, want 2, %d, %s", tc.after, finished, tokens, next, tc.tokens, tc.next)
		}
	}
}

func TestScreenProgressInAPipe(t *testing.T) {
	start := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	var b bytes.Buffer
	s := newScreen(nil, &b, false, false)
	show := func(second, done int, cause string, final bool) {
		elapsed := time.Duration(second) * time.Second
		s.progress(standing{elapsed: elapsed, total: 3, done: done, inHand: 3 - done, limit: 1000, cause: cause}, start.Add(elapsed), final)
	}
	show(1, 0, "", false)
	show(2, 0, "", false) // nothing new
	show(3, 1, "", false)
	show(4, 1, "waiting for tokens, next in 20 s", false)
	show(5, 1, "waiting for tokens, next in 19 s", false) // only the time is new
	show(14, 1, "waiting for tokens, next in 10 s", false)
	show(15, 3, "", true)
	const want = "  1.0 s  0 of 3 done, 3 in hand, 0 queued, 0 calls, 0 of 1000 TPM\n" +
		"  3.0 s  1 of 3 done, 2 in hand, 0 queued, 0 calls, 0 of 1000 TPM\n" +
		"  4.0 s  1 of 3 done, 2 in hand, 0 queued; waiting for tokens, next in 20 s\n" +
		" 14.0 s  1 of 3 done, 2 in hand, 0 queued; waiting for tokens, next in 10 s\n" +
		" 15.0 s  3 of 3 done, 0 in hand, 0 queued, 0 calls, 0 of 1000 TPM\n"
	if b.String() != want {
		t.Errorf("progress in a pipe is\n%swant\n%s", b.String(), want)
	}
}

func TestScreenJSONIsSilent(t *testing.T) {
	var out, err bytes.Buffer
	s := newScreen(&out, &err, true, false)
	s.note("a note")
	s.progress(standing{}, time.Now(), true)
	if sayErr := s.say("a fact"); sayErr != nil || out.Len()+err.Len() > 0 {
		t.Errorf("with JSON it says %q and %q, %v", out.String(), err.String(), sayErr)
	}
}
