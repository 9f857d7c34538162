package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"millrace/test/blobtest"
)

// stalled is how long nothing has to happen before a reason for it is looked for.
const stalled = 800 * time.Millisecond

var errWorkerEnded = errors.New("a worker ended before the work was done")

// standing is where a run stands, by what the emulators count.
type standing struct {
	elapsed                            time.Duration
	total, done, inHand, queued, calls int
	tokens, limit                      int    // of this minute
	cause                              string // why nothing happens, if nothing does
}

func (p standing) counts() string {
	return fmt.Sprintf("%d of %d done, %d in hand, %d queued", p.done, p.total, p.inHand, p.queued)
}

func (p standing) line() string {
	line := fmt.Sprintf("%5.1f s  %s", p.elapsed.Seconds(), p.counts())
	if p.cause != "" {
		return line + "; " + p.cause
	}
	return line + fmt.Sprintf(", %d calls, %d of %d TPM", p.calls, p.tokens, p.limit)
}

// watch returns when every message is settled, and shows progress until then.
func (l *lab) watch(ctx context.Context, claims int, s *screen, began time.Time) error {
	ctx, stop := context.WithCancel(ctx)
	empty := make(chan error, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() { empty <- l.bus.AwaitEmpty(ctx, sampleQueue) })
	defer waiting.Wait()
	defer stop()

	ticker := time.NewTicker(s.every())
	defer ticker.Stop()
	var last standing
	changed := began
	for {
		select {
		case err := <-empty:
			s.progress(l.standing(claims, began, time.Now()), time.Now(), true)
			if err != nil {
				return fmt.Errorf("wait for the queue to be empty: %w", err)
			}
			return nil
		case <-l.fleet.ended:
			return errWorkerEnded
		case now := <-ticker.C:
			p := l.standing(claims, began, now)
			if p.counts() != last.counts() || p.calls != last.calls {
				changed = now
			}
			last = p
			if now.Sub(changed) >= stalled {
				p.cause = l.cause(now)
			}
			s.progress(p, now, false)
		}
	}
}

func (l *lab) standing(claims int, began, now time.Time) standing {
	queue := l.bus.Stats(sampleQueue)
	_, tokens, _ := l.calls.at(now)
	p := standing{
		elapsed: now.Sub(began), total: claims, queued: queue.Active,
		done: l.done(), calls: l.model.Calls(), tokens: tokens, limit: l.tpm,
	}
	// A message can be locked although its result is there; it counts once.
	p.inHand = max(0, p.total-p.done-p.queued)
	return p
}

// cause says why no call is being made, or "" if one is.
func (l *lab) cause(now time.Time) string {
	finished, tokens, next := l.calls.at(now)
	if l.model.Calls() > finished {
		return ""
	}
	locks := l.fleet.locksEnd().Sub(now)
	switch {
	case locks > 0:
		return fmt.Sprintf("a lost worker's locks end in %d s", wholeSeconds(locks))
	case tokens > 0:
		return fmt.Sprintf("waiting for tokens, next in %d s", wholeSeconds(next))
	}
	return ""
}

// interrupted is the error of a run that somebody stopped, once the workers have.
func (l *lab) interrupted() error {
	queue := l.bus.Stats(sampleQueue)
	if queue.Enqueued == 0 {
		return errors.New("interrupted before the claims were sent")
	}
	return fmt.Errorf("interrupted: %d of %d documents were done", l.done(), queue.Enqueued)
}

// done is how many documents have a result or a dead letter.
func (l *lab) done() int {
	return l.bus.Stats(sampleQueue).DeadLettered + len(l.blobs.List(blobtest.DevAccount, resultContainer, ""))
}

func wholeSeconds(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
