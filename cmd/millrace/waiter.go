package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"millrace/claimcheck"
)

const (
	lookups       = 16  // results looked for at once
	lookAtFront   = 256 // of the oldest claims without a result, at each look; work is done about in order
	lookElsewhere = 256 // of the others, in turn
	soonest       = 250 * time.Millisecond
	latest        = 3 * time.Second
	rateOver      = 30 * time.Second // how far back the rate looks
	patience      = time.Minute      // how long storage may not answer, once it has
)

// ending is how the waiting for one claim ended. Exactly one of Outcome, DeadLetter and Missing says so.
type ending struct {
	receipt
	Outcome    string  `json:"outcome,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	Detail     string  `json:"detail,omitempty"`
	DeadLetter bool    `json:"dead_lettered,omitempty"`
	Missing    bool    `json:"missing,omitempty"`
	Cost       float64 `json:"cost,omitempty"`
	Currency   string  `json:"currency,omitempty"`
}

// word is the ending in one word.
func (e ending) word() string {
	switch {
	case e.DeadLetter:
		return "dead-lettered"
	case e.Missing:
		return "missing"
	}
	return e.Outcome
}

// waiter waits for the results of claims that were sent.
type waiter struct {
	store   *claimcheck.Store
	client  *client
	dead    *deadLetters // nil if nobody looks for them
	archive *archive     // for claims of which only the correlation id is known; nil if there are none
	screen  *screen
	told    func(ending) error // once for each claim, in the order they end

	pending []receipt
	cursor  int // where the others are looked at next
	total   int
	counts  map[string]int // by word
	ends    []time.Time    // of claims that ended lately
	reached time.Time      // when storage last answered
	began   time.Time
}

// wait returns when every claim has ended, or ctx has: then the rest is told as missing if time was up, and the error is
// the context's if somebody stopped it. Results are looked for more rarely while nothing happens.
func (w *waiter) wait(ctx context.Context, claims []receipt) error {
	w.pending, w.total, w.counts, w.began = slices.Clone(claims), len(claims), make(map[string]int), time.Now()
	pause := soonest
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return w.give(ctx)
		case <-timer.C:
		}
		before := len(w.pending)
		err := w.look(ctx)
		if err == nil && len(w.pending) > 0 && w.dead != nil {
			err = w.lookAtDeadLetters(ctx)
		}
		if ctx.Err() != nil {
			return w.give(ctx)
		}
		if err != nil {
			return err
		}
		now := time.Now()
		w.screen.show(w.line(now), fmt.Sprint(len(w.pending)), now, len(w.pending) == 0)
		if len(w.pending) == 0 {
			return nil
		}
		pause = min(pause*3/2, latest)
		if len(w.pending) < before {
			pause = soonest
		}
		timer.Reset(pause)
	}
}

// give ends the waiting: what has no result is missing if the time was up.
func (w *waiter) give(ctx context.Context) error {
	now := time.Now()
	w.screen.show(w.line(now), "", now, true)
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("interrupted: %d of %d claims had a result", w.total-len(w.pending), w.total)
	}
	for _, r := range w.pending {
		if err := w.end(ending{receipt: r, Missing: true}, now); err != nil {
			return err
		}
	}
	w.pending = nil
	return nil
}

func (w *waiter) end(e ending, now time.Time) error {
	w.counts[e.word()]++
	w.ends = append(w.ends, now)
	return w.told(e)
}

// look looks for the results of the oldest claims, and of some of the others in turn.
func (w *waiter) look(ctx context.Context) error {
	front := min(len(w.pending), lookAtFront)
	if w.cursor < front || w.cursor >= len(w.pending) {
		w.cursor = front
	}
	at := make([]int, 0, lookAtFront+lookElsewhere)
	for i := range front {
		at = append(at, i)
	}
	for ; w.cursor < len(w.pending) && len(at) < front+lookElsewhere; w.cursor++ {
		at = append(at, w.cursor)
	}
	found := make([]*claimcheck.Result, len(at))
	errs := make([]error, len(at))
	each(lookups, len(at), func(i int) {
		found[i], errs[i] = w.find(ctx, &w.pending[at[i]])
	})
	now := time.Now()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i < 0 {
		w.reached = now
	} else if now.Sub(w.reached) > patience {
		return fmt.Errorf("look for results: %w", blobAdvice(errs[i], w.client.results, "MILLRACE_RESULTS", roleReader))
	}
	ended := make(map[int]bool) // by place in pending
	for i, r := range found {
		if r == nil {
			continue
		}
		ended[at[i]] = true
		if err := w.end(endingOf(w.pending[at[i]], r), now); err != nil {
			return err
		}
	}
	w.forget(ended)
	return nil
}

// find returns the result of a claim, nil if there is none.
func (w *waiter) find(ctx context.Context, r *receipt) (*claimcheck.Result, error) {
	if r.Result != "" {
		result, ok, err := w.store.Lookup(ctx, r.Result)
		if !ok {
			return nil, err
		}
		return result, err
	}
	all, err := w.archive.of(ctx, r.Tenant, r.CorrelationID)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	r.Result = all[0].name
	return all[0].result, nil
}

// endingOf is the ending that a result is. A blob that no reader understands is one as well: the name is taken.
func endingOf(of receipt, r *claimcheck.Result) ending {
	e := ending{
		receipt: of, Outcome: string(r.Outcome), Reason: string(r.Reason), Detail: r.Detail, Cost: r.Cost.Amount, Currency: r.Cost.Currency,
	}
	if e.Outcome == "" {
		e.Outcome, e.Detail = "unknown", "the blob of that name is no result that this version reads"
	}
	return e
}

// forget takes the claims at these places off the list.
func (w *waiter) forget(ended map[int]bool) {
	kept := w.pending[:0]
	for i, r := range w.pending {
		if !ended[i] {
			kept = append(kept, r)
		}
	}
	w.cursor -= len(ended)
	w.pending = kept
}

// lookAtDeadLetters ends the claims whose messages are dead-lettered.
func (w *waiter) lookAtDeadLetters(ctx context.Context) error {
	letters, err := w.dead.look(ctx, time.Now())
	if err != nil || len(letters) == 0 {
		return err
	}
	now := time.Now()
	ended := make(map[int]bool)
	for i, r := range w.pending {
		letter, ok := letters[r.Result]
		if !ok {
			continue
		}
		ended[i] = true
		if err := w.end(ending{receipt: r, DeadLetter: true, Reason: letter.reason, Detail: letter.description}, now); err != nil {
			return err
		}
	}
	w.forget(ended)
	return nil
}

// line is progress in ASCII: how many claims have ended, how fast, and how long the rest takes at that rate.
func (w *waiter) line(now time.Time) string {
	done := w.total - len(w.pending)
	line := fmt.Sprintf("%5.1f s  %d of %d done", now.Sub(w.began).Seconds(), done, w.total)
	from := now.Add(-rateOver)
	if from.Before(w.began) {
		from = w.began
	}
	w.ends = slices.DeleteFunc(w.ends, func(t time.Time) bool { return t.Before(from) })
	over := now.Sub(from).Seconds()
	if len(w.ends) == 0 || over < 0.1 {
		return line
	}
	rate := float64(len(w.ends)) / over
	line += fmt.Sprintf(", %.1f a second", rate)
	if len(w.pending) > 0 {
		line += ", about " + (time.Duration(float64(len(w.pending))/rate*float64(time.Second)) + time.Second).Truncate(time.Second).String() + " left"
	}
	return line
}

// summary is the counts in one line, successes first.
func (w *waiter) summary() string {
	var words []string
	for _, o := range claimcheck.Outcomes() {
		words = append(words, string(o))
	}
	words = append(words, "unknown", "dead-lettered", "missing")
	var parts []string
	for _, word := range words {
		if n := w.counts[word]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, word))
		}
	}
	return fmt.Sprintf("%d claims: %s; %.1f s", w.total, strings.Join(parts, ", "), time.Since(w.began).Seconds())
}

// verdict is an error if a claim has no result, or one of the outcomes that are not wanted.
func (w *waiter) verdict(unwanted map[string]bool) error {
	if n := w.counts["missing"] + w.counts["dead-lettered"]; n > 0 {
		return fmt.Errorf("%d of %d claims have no result: %d missing, %d dead-lettered", n, w.total, w.counts["missing"], w.counts["dead-lettered"])
	}
	var parts []string
	for _, o := range claimcheck.Outcomes() {
		if n := w.counts[string(o)]; n > 0 && unwanted[string(o)] {
			parts = append(parts, fmt.Sprintf("%d %s", n, o))
		}
	}
	if len(parts) > 0 {
		return fmt.Errorf("of %d claims: %s", w.total, strings.Join(parts, ", "))
	}
	return nil
}

// each calls f with 0 to n-1, at most limit at once, and returns when all calls have.
func each(limit, n int, f func(i int)) {
	next := make(chan int)
	var working sync.WaitGroup
	for range min(limit, n) {
		working.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	working.Wait()
}

// outcomesOf reads a list of outcomes. "failed" stands for those that say this document can never succeed.
func outcomesOf(flag string, list []string) (map[string]bool, error) {
	set := make(map[string]bool)
	for _, word := range list {
		word = strings.TrimSpace(word)
		switch {
		case word == "failed":
			for _, o := range []claimcheck.Outcome{claimcheck.OutcomeRejected, claimcheck.OutcomeUnreadable, claimcheck.OutcomeExpired, claimcheck.OutcomeSuperseded} {
				set[string(o)] = true
			}
		case slices.Contains(claimcheck.Outcomes(), claimcheck.Outcome(word)):
			set[word] = true
		default:
			return nil, usageError{fmt.Errorf("--%s %q: use %s or failed, which is rejected, unreadable, expired and superseded", flag, word, outcomeList())}
		}
	}
	return set, nil
}

func outcomeList() string {
	var words []string
	for _, o := range claimcheck.Outcomes() {
		words = append(words, string(o))
	}
	return strings.Join(words, ", ")
}
