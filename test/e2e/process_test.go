package e2e

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

// TestWorkerProcess runs the worker as the platform does: its own binary, its environment, signals, and TCP.
func TestWorkerProcess(t *testing.T) {
	binary := buildWorker(t)
	for _, tc := range []struct {
		name string
		run  func(t *testing.T, binary string)
	}{
		{"DrainsWithFullHands", drainWithFullHands},
		{"DrainsInFullFlow", drainInFullFlow},
		{"SecondSignalEndsItAtOnce", secondSignal},
		{"SurvivesSIGKILL", killCampaign},
		{"RefusesItsEnvironment", badEnvironment},
		{"RefusesItsCatalog", badCatalog},
		{"WaitsForTheBroker", unreachableBroker},
		{"TakesUpWorkWhenTheBrokerComes", lateBroker},
		{"Measured", measure},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.run(t, binary) })
	}
}

// drainWithFullHands ends a worker when it has all it can carry and a queue behind it: what it has begun it finishes, what
// it has not begun it gives back, and nothing stays locked.
func drainWithFullHands(t *testing.T, binary string) {
	const messages, slots, poison, fluent = 200, 16, 3, 100
	const grace = 20 * time.Second
	b := &ward{full: make(chan struct{}), release: make(chan struct{}), mended: make(chan struct{}), fluent: fluent, slots: slots, held: map[string]bool{}}
	p := openPlant(t, binary, 30*time.Second, &blobtest.Server{
		Fault: func(r blobtest.Request) *blobtest.Fault { // something to log about
			if r.Operation == blobtest.OperationGetBlob && r.Attempt == 1 && strings.HasSuffix(r.Blob, "7.txt") {
				return &blobtest.Fault{Status: http.StatusServiceUnavailable}
			}
			return nil
		},
	}, &modeltest.Server{APIKey: canaryKey, Behave: b.behave})
	for i := range poison { // claims that no producer of ours would encode
		p.sendRaw(fmt.Sprint("sas-", i), fmt.Appendf(nil, `{"version":"1","tenant":"acme","model":%q,"correlation_id":"sas","blob":"%s/%s/acme/a.txt?sv=2024-11-04&sp=r&sig=%s"}`,
			alias, p.account(), inputs, canarySAS))
	}
	claims := p.submit(messages, 0)
	env := map[string]string{"MILLRACE_SLOTS": fmt.Sprint(slots), "MILLRACE_DRAIN": grace.String()}

	first := p.start(canaryKey, env)
	await(t, b.full, "full hands")
	asked := time.Now()
	first.signal(syscall.SIGTERM)
	p.await("what is not begun given back", func(s sbtest.Stats) bool { return s.Abandoned == b.holds() })
	close(b.release)
	code := first.awaitExit(patience)
	if took := time.Since(asked); code != 0 || took > grace {
		t.Errorf("exit code after SIGTERM = %d in %v, want 0 within %v; it said:\n%s", code, took, grace, first.logs.text())
	}
	s, written, held := p.bus.Stats(queue), len(p.blobs.List(blobtest.DevAccount, results, "")), b.holds()
	if want := fluent + slots - held; s.Completed != want || written != want || s.Abandoned != held || s.Locked != 0 {
		t.Errorf("after the drain: completed %d, results %d, abandoned %d, locked %d, want %d, %d, %d, 0",
			s.Completed, written, s.Abandoned, s.Locked, want, want, held)
	}
	records := first.checkLogs()
	last := records[len(records)-1]
	count := func(name string) int { n, _ := last[name].(float64); return int(n) }
	if last["msg"] != "worker stopped" || count("answered") != s.Completed || count("poison") != poison ||
		count("drained") != s.Abandoned || count("interrupted") != s.Abandoned || count("unsettled") != 0 || count("locks_lost") != 0 {
		t.Errorf("last line = %v, want worker stopped with answered %d, poison %d, drained and interrupted %d, nothing unsettled or lost",
			last, s.Completed, poison, s.Abandoned)
	}

	close(b.mended)
	second := p.start(canaryKey, env)
	p.awaitEmpty()
	second.drain()
	second.checkLogs()
	p.check(claims)
	again := p.deliveredAgain(claims)
	// The client releases what arrives between two of its receives: a delivery that nobody saw.
	if s = p.bus.Stats(queue); again < s.Abandoned || again > s.Abandoned+s.Released || s.DeadLettered != poison || s.LocksExpired != 0 {
		t.Errorf("delivered more than once %d, dead-lettered %d, locks expired %d, want %d to %d, %d, 0",
			again, s.DeadLettered, s.LocksExpired, s.Abandoned, s.Abandoned+s.Released, poison)
	}
	t.Logf("SIGTERM with %d of %d done and %d in hand, %d of them begun: %d finished, %d given back, %d delivered more than once, %d of them unseen, %d log lines",
		fluent, messages, slots, slots-held, written, s.Abandoned, again, again-s.Abandoned, len(records))
}

// ward is a model that answers fluent calls at once, and then none until release. Some documents fail every time until it
// is mended, so that their messages are held.
type ward struct {
	fluent, slots         int
	full, release, mended chan struct{} // full is closed when every slot waits for one of the others

	mu             sync.Mutex
	answers, stuck int
	held           map[string]bool
}

func (b *ward) behave(c modeltest.Call) modeltest.Behaviour {
	select {
	case <-b.mended:
		return modeltest.Behaviour{Text: canaryAnswer}
	default:
	}
	answer, wait := b.judge(c)
	if wait {
		<-b.release
	}
	return answer
}

func (b *ward) judge(c modeltest.Call) (answer modeltest.Behaviour, wait bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.held) + b.stuck
	switch {
	case c.SHA256[0] == '0':
		b.held[c.SHA256] = true
		answer = modeltest.ServerError(http.StatusInternalServerError)
	case b.answers < b.fluent:
		b.answers++
		answer.Text = canaryAnswer
	default:
		b.stuck++
		answer.Text, wait = canaryAnswer, true
	}
	if now := len(b.held) + b.stuck; now == b.slots && now > before {
		close(b.full)
	}
	return answer, wait
}

// holds is how many documents failed so far.
func (b *ward) holds() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.held)
}

// await waits for a channel to be closed.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c:
	case <-timer.C:
		t.Fatalf("no %s in %v", what, patience)
	}
}

// drainInFullFlow ends a worker while messages come and go: also what the broker sends while the worker stops receiving is
// given back, and waits for no lock to end.
func drainInFullFlow(t *testing.T, binary string) {
	const messages, slots = 1000, 64
	p := openPlant(t, binary, 30*time.Second, &blobtest.Server{}, &modeltest.Server{
		Latency: func(int, int) time.Duration { return time.Millisecond + rand.N(19*time.Millisecond) },
	})
	claims := p.submit(messages, 0)
	env := map[string]string{"MILLRACE_SLOTS": fmt.Sprint(slots)}
	first := p.start(canaryKey, env)
	p.awaitCalls(messages / 2)
	asked := time.Now()
	first.drain()
	took := time.Since(asked)
	first.checkLogs()
	s, written, calls := p.bus.Stats(queue), len(p.blobs.List(blobtest.DevAccount, results, "")), p.model.Calls()
	if s.Completed != written || calls != written || s.Locked != 0 {
		t.Errorf("after the drain: completed %d, results %d, calls %d, locked %d, want three equal and 0", s.Completed, written, calls, s.Locked)
	}

	second := p.start(canaryKey, env)
	p.awaitEmpty()
	second.drain()
	p.check(claims)
	t.Logf("SIGTERM after %d calls of %d, gone %v later: %d finished, %d given back, %d left locked, %d delivered more than once",
		messages/2, messages, took.Round(time.Millisecond), written, s.Abandoned, s.Locked, p.deliveredAgain(claims))
}

// secondSignal: who is asked twice goes without ceremony. The locks run out, and somebody else does the work.
func secondSignal(t *testing.T, binary string) {
	for _, tc := range []struct {
		name   string
		second syscall.Signal
	}{
		{"SIGTERM", syscall.SIGTERM},
		{"SIGINT", syscall.SIGINT},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const slots, messages = 8, 20
			const lock = 3 * time.Second
			p := openPlant(t, binary, lock, &blobtest.Server{}, &modeltest.Server{
				Behave: func(c modeltest.Call) modeltest.Behaviour {
					if c.Header.Get("Api-Key") != "hanging" {
						return modeltest.Behaviour{}
					}
					if strings.HasPrefix(c.User, canaryText+" 0 ") {
						return modeltest.ServerError(http.StatusInternalServerError) // its message is held: the drain gives it back
					}
					return modeltest.Behaviour{Kind: modeltest.Hang}
				},
			})
			claims := p.submit(messages, 0)
			env := map[string]string{"MILLRACE_SLOTS": "8", "MILLRACE_DRAIN": "1h"}
			hanging := p.start("hanging", env)
			p.awaitCalls(slots - 1)
			hanging.signal(syscall.SIGTERM)
			p.await("the begin of the drain", func(s sbtest.Stats) bool { return s.Abandoned == 1 })
			if s := p.bus.Stats(queue); s.Locked != slots-1 {
				t.Errorf("during the drain: locked %d, want %d", s.Locked, slots-1)
			}
			asked := time.Now()
			hanging.insist(tc.second)
			took := time.Since(asked)
			if got, want := hanging.cmd.ProcessState.ExitCode(), 128+int(tc.second); got != want {
				t.Errorf("exit code = %d, want %d; it said:\n%s", got, want, hanging.logs.text())
			}
			if took > 5*time.Second {
				t.Errorf("it took %v to end, want no waiting", took)
			}
			hanging.checkLogs()

			other := p.start("other", env)
			p.awaitEmpty()
			other.drain()
			p.check(claims)
			s := p.bus.Stats(queue)
			if s.LocksExpired != slots-1 || s.Completed != messages || s.Abandoned != 1 {
				t.Errorf("locks expired %d, completed %d, abandoned %d, want %d, %d, 1", s.LocksExpired, s.Completed, s.Abandoned, slots-1, messages)
			}
			t.Logf("gone %v after the second signal; %d deliveries of %d messages, %d calls", took.Round(time.Millisecond), s.Deliveries, messages, p.model.Calls())
		})
	}
}
