package e2e

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

// TestFleetLosesNothingInBadWeather lets everything go wrong at once, at random, for two minutes: the broker drops all
// connections, storage answers 503 or breaks off after the effect, the model answers 429, 500 or nothing, and one worker
// after another is cut off for good and replaced. Then each claim still has exactly one result, and no document was sent
// to the model after its result was there.
func TestFleetLosesNothingInBadWeather(t *testing.T) {
	seeds := 5
	if raceDetector || testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { badWeather(t, uint64(seed)) })
		})
	}
}

// dice is a random source that many goroutines may use.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) n(sides int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(sides)
}

func badWeather(t *testing.T, seed uint64) {
	const workers, slots, messages = 6, 8, 400
	w := newWorld(t, 400_000, 30*time.Second, 20*time.Millisecond)
	defer w.close()
	d := &dice{r: rand.New(rand.NewPCG(seed, 1))}
	over := time.Now().Add(2 * time.Minute)
	bad := func(oneIn int) bool { return time.Now().Before(over) && d.n(oneIn) == 0 }
	w.blobs.Fault = func(blobtest.Request) *blobtest.Fault {
		if !bad(8) {
			return nil
		}
		return []*blobtest.Fault{{Status: 503}, {Status: 500}, {Cut: true}, {Cut: true, AfterEffect: true}, {Status: 503, RetryAfter: 3 * time.Second}}[d.n(5)]
	}
	w.model.Behave = func(modeltest.Call) modeltest.Behaviour {
		if !bad(4) {
			return modeltest.Behaviour{}
		}
		return []modeltest.Behaviour{modeltest.ServerError(500), modeltest.BadGateway(), modeltest.Capacity(4 * time.Second),
			{Kind: modeltest.CutBefore}, {Kind: modeltest.CutAfter}}[d.n(5)]
	}

	var severs []func()
	for range workers {
		severs = append(severs, w.add(workers*3, slots))
	}
	defer w.stopFleet()
	claims := w.submit(messages)
	for time.Now().Before(over) {
		<-time.After(time.Duration(5+d.n(10)) * time.Second)
		switch d.n(4) {
		case 0:
			w.bus.Cut()
		case 1:
			w.bus.Detach(queue, "amqp:link:detach-forced", "maintenance")
		case 2:
			w.bus.Inject(sbtest.Fault{Point: sbtest.OnSettleReply, Times: 3})
		case 3:
			severs[0]()
			severs = append(severs[1:], w.add(workers*3, slots))
		}
	}
	w.await(2 * time.Hour)
	w.stopFleet()
	w.checkResults(claims)
	s, m := w.bus.Stats(queue), w.model.Stats()
	t.Logf("%d deliveries of %d messages, %d calls, %d locks expired, %d connections", s.Deliveries, messages, m.Calls, s.LocksExpired, w.bus.Totals().Connections)
}
