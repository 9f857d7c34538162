package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

// moment is where a worker is when it is killed.
type moment int

const (
	never       moment = iota
	atFetch            // some worker asks for a document; any is killed
	atCall             // its request has reached the model
	beforeWrite        // its result has arrived, and is not stored
	afterWrite         // its result is stored, and it will not hear of that
	atSettle           // some message has just been completed; any worker is killed
	moments
)

func (m moment) String() string {
	return [...]string{"never", "at a fetch", "at its call", "before its write", "after its write", "at a settlement"}[m]
}

// hunt kills workers in the middle of their work. Blob and the model tell it where they are: each worker has its own key
// for the model, and so each document the worker that last asked about it.
type hunt struct {
	mu      sync.Mutex
	dice    *rand.Rand
	armed   moment
	alive   map[string]*workerProcess // by key
	caller  map[string]string         // SHA-256 of a document → key
	sha256  map[string]string         // result → SHA-256 of its document
	victims chan *workerProcess
	writing chan write // of afterWrite
}

// write is a result that its worker will not hear of.
type write struct{ result, key string }

// arm makes the next worker at this moment the victim.
func (h *hunt) arm(m moment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.armed = m
}

// strike kills the worker with this key, any for "", if this is the moment, and returns when it is dead.
func (h *hunt) strike(m moment, key string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.armed != m {
		return false
	}
	if key == "" {
		keys := make([]string, 0, len(h.alive))
		for k := range h.alive {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		key = keys[h.dice.IntN(len(keys))]
	}
	victim, ok := h.alive[key]
	if !ok {
		return false // what arrives comes from a worker that is dead already
	}
	h.armed = never
	h.kill(key, victim)
	return true
}

// kill ends a worker and returns when it is dead. h.mu is held.
func (h *hunt) kill(key string, victim *workerProcess) {
	delete(h.alive, key)
	_ = victim.cmd.Process.Signal(syscall.SIGKILL) // how it ended is judged later
	<-victim.exited
	h.victims <- victim
}

// follow is the moment after a write: it waits until the result that a worker has sent is stored, and kills the worker,
// which has no answer yet.
func (h *hunt) follow(ctx context.Context, p *plant) error {
	var w write
	select {
	case w = <-h.writing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	stored := func(s *blobtest.Server) bool { return s.Creates(blobtest.DevAccount, results, w.result) > 0 }
	if err := p.blobs.Await(ctx, stored); err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kill(w.key, h.alive[w.key])
	return nil
}

// behave remembers who asks about a document.
func (h *hunt) behave(c modeltest.Call) modeltest.Behaviour {
	key := c.Header.Get("Api-Key")
	h.mu.Lock()
	h.caller[c.SHA256] = key
	h.mu.Unlock()
	h.strike(atCall, key)
	return modeltest.Behaviour{}
}

func (h *hunt) fault(r blobtest.Request) *blobtest.Fault {
	switch r.Operation {
	case blobtest.OperationGetBlob:
		if r.Container == inputs {
			h.strike(atFetch, "")
		}
	case blobtest.OperationPutBlob:
		h.mu.Lock()
		writer := h.caller[h.sha256[r.Blob]]
		after := h.armed == afterWrite && h.alive[writer] != nil
		if after {
			h.armed = never
			h.writing <- write{r.Blob, writer}
		}
		h.mu.Unlock()
		if after {
			return &blobtest.Fault{AfterEffect: true, Hang: true}
		}
		if writer != "" && h.strike(beforeWrite, writer) {
			return &blobtest.Fault{Cut: true}
		}
	}
	return nil
}

// killCampaign kills one worker after another and replaces it, at seeded points of the work and of a message's life.
// MILLRACE_KILLS, MILLRACE_MESSAGES and MILLRACE_SEED make it longer and different.
func killCampaign(t *testing.T, binary string) {
	const workers, slots = 4, 8
	kills, messages, seed := setting(t, "MILLRACE_KILLS", 8), setting(t, "MILLRACE_MESSAGES", 300), setting(t, "MILLRACE_SEED", 1)
	h := &hunt{
		dice:  rand.New(rand.NewPCG(uint64(seed), 1)),
		alive: map[string]*workerProcess{}, caller: map[string]string{}, sha256: map[string]string{},
		victims: make(chan *workerProcess, 1), writing: make(chan write, 1),
	}
	p := openPlant(t, binary, 3*time.Second, &blobtest.Server{Fault: h.fault}, &modeltest.Server{
		Behave:  h.behave,
		Latency: func(int, int) time.Duration { return 20*time.Millisecond + rand.N(80*time.Millisecond) },
	})
	claims := p.submit(messages, 0)
	h.mu.Lock()
	for _, c := range claims {
		h.sha256[c.result] = c.sha256
	}
	h.mu.Unlock()
	started := 0
	add := func() {
		started++
		key := fmt.Sprint("worker-", started)
		w := p.start(key, map[string]string{"MILLRACE_SLOTS": fmt.Sprint(slots), "MILLRACE_MAX_REPLICAS": fmt.Sprint(workers), "MILLRACE_LOG_LEVEL": "info"})
		h.mu.Lock()
		h.alive[key] = w
		h.mu.Unlock()
	}
	began := time.Now()
	for range workers {
		add()
	}
	where := map[moment]int{}
	var dead []*workerProcess
	for i := range kills {
		m := 1 + moment((i+seed)%int(moments-1))
		due := int((float64(i) + h.roll()) * 0.9 * float64(messages) / float64(kills))
		p.await(fmt.Sprint(due, " completed messages"), func(s sbtest.Stats) bool { return s.Completed >= due })
		h.arm(m)
		if m == atSettle {
			p.await("a settlement", func(s sbtest.Stats) bool { return s.Completed > due })
			h.strike(atSettle, "")
		}
		dead = append(dead, h.awaitVictim(p, m))
		where[m]++
		add()
	}
	p.awaitEmpty()
	took := time.Since(began)
	for _, w := range h.alive {
		w.drain()
		w.checkLogs()
	}
	for _, w := range dead {
		if got := w.endedBy(); got != syscall.SIGKILL {
			t.Errorf("ended by %v, exit code %d, want SIGKILL; it said:\n%s", got, w.cmd.ProcessState.ExitCode(), w.logs.text())
		}
		w.checkLogs()
	}
	p.check(claims)

	s, calls, found := p.bus.Stats(queue), p.model.Calls(), p.judge(claims)
	if s.Completed != messages || s.DeadLettered != 0 {
		t.Errorf("completed %d, dead-lettered %d, want %d, 0", s.Completed, s.DeadLettered, messages)
	}
	if most := messages + kills*slots; calls > most {
		t.Errorf("calls = %d, want at most one a message and one for each slot that was killed, %d", calls, most)
	}
	t.Logf("seed %d: %d messages, %d workers × %d slots, %d killed with SIGKILL", seed, messages, workers, slots, len(dead))
	for m := atFetch; m < moments; m++ {
		t.Logf("  %2d %v", where[m], m)
	}
	t.Logf("results lost %d, written twice %d, calls after a written result %d", found.lost, found.twice, found.late)
	t.Logf("%d deliveries, %d locks expired, %d calls (%d paid twice), %d processes, %.1f s",
		s.Deliveries, s.LocksExpired, calls, calls-messages, started, took.Seconds())
}

func (h *hunt) roll() float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dice.Float64()
}

func (h *hunt) awaitVictim(p *plant, m moment) *workerProcess {
	t := p.t
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if m == afterWrite {
		if err := h.follow(ctx, p); err != nil {
			t.Fatalf("waiting for a result to be stored: %v", err)
		}
	}
	select {
	case w := <-h.victims:
		return w
	case <-ctx.Done():
		t.Fatalf("no worker was caught %v in %v", m, patience)
		return nil
	}
}

// setting is a number from the environment of the test.
func setting(t *testing.T, name string, standard int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return standard
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s = %q, want a whole number from 1", name, text)
	}
	return n
}
