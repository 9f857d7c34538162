package e2e

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"millrace/test/blobtest"
	"millrace/test/modeltest"
	"millrace/test/sbtest"
)

// measure prints what one worker costs. MILLRACE_MEASURE=1 measures the binary as it is shipped, built with -trimpath,
// and more often; that build shares nothing with the cache of an ordinary one.
func measure(t *testing.T, binary string) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skipf("memory of a process cannot be read on %s: %v", runtime.GOOS, err)
	}
	runs, how := 1, "-ldflags '-s -w'"
	if os.Getenv("MILLRACE_MEASURE") != "" {
		runs, how = 7, "-trimpath -ldflags '-s -w'"
		binary = buildWorker(t, "-trimpath")
	}
	if raceDetector {
		how += " -race"
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("binary, %s: %.1f MiB", how, float64(info.Size())/(1<<20))

	var idle, loaded, peak []float64
	var first []time.Duration
	for range runs {
		first = append(first, measureStart(t, binary))
		idle = append(idle, measureIdle(t, binary))
		now, most := measureLoad(t, binary)
		loaded, peak = append(loaded, now), append(peak, most)
	}
	t.Logf("exec to first message received: %v (median of %d, %v to %v)", median(first).Round(time.Millisecond), runs,
		slices.Min(first).Round(time.Millisecond), slices.Max(first).Round(time.Millisecond))
	t.Logf("RSS connected and idle: %.0f MiB (%.0f to %.0f)", median(idle), slices.Min(idle), slices.Max(idle))
	t.Logf("RSS with 64 slots × 1 MiB documents in the model's hands: %.0f MiB (%.0f to %.0f), its peak %.0f MiB (%.0f to %.0f)",
		median(loaded), slices.Min(loaded), slices.Max(loaded), median(peak), slices.Min(peak), slices.Max(peak))
}

func median[T int | float64 | time.Duration](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// measureStart is the time from exec to the moment the broker hands out the first message.
func measureStart(t *testing.T, binary string) time.Duration {
	t.Helper()
	p := openPlant(t, binary, time.Minute, &blobtest.Server{}, &modeltest.Server{})
	p.submit(1, 0)
	w := p.start(canaryKey, nil)
	p.await("a delivery", func(s sbtest.Stats) bool { return s.Deliveries > 0 })
	took := time.Since(w.started)
	p.awaitEmpty()
	w.drain()
	return took
}

// measureIdle is the resident memory in MiB of a worker that waits for its first message.
func measureIdle(t *testing.T, binary string) float64 {
	t.Helper()
	p := openPlant(t, binary, time.Minute, &blobtest.Server{}, &modeltest.Server{})
	w := p.start(canaryKey, nil)
	p.await("links in line", func(s sbtest.Stats) bool { return s.Waiting == 2 })
	rss := w.memory("VmRSS")
	w.drain()
	return rss
}

// measureLoad is the resident memory in MiB, and its highest so far, of a worker with all slots in calls whose requests
// have been sent.
func measureLoad(t *testing.T, binary string) (now, most float64) {
	t.Helper()
	const slots = 64
	arrived, release := make(chan struct{}, slots), make(chan struct{})
	p := openPlant(t, binary, time.Minute, &blobtest.Server{}, &modeltest.Server{
		Deployments: map[string]modeltest.Deployment{deployment: {ContextWindow: 1_000_000}},
		Behave: func(modeltest.Call) modeltest.Behaviour {
			arrived <- struct{}{}
			<-release
			return modeltest.Behaviour{}
		},
	})
	claims := p.submit(slots, 1<<20)
	w := p.start(canaryKey, map[string]string{"MILLRACE_SLOTS": fmt.Sprint(slots)})
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for n := range slots {
		select {
		case <-arrived:
		case <-timeout.C:
			close(release)
			t.Fatalf("calls = %d in %v, want %d; the worker said:\n%s", n, patience, slots, w.logs.text())
		}
	}
	now, most = w.memory("VmRSS"), w.memory("VmHWM")
	close(release)
	p.awaitEmpty()
	w.drain()
	p.check(claims)
	return now, most
}

// memory reads a size of the process, in MiB ("proc_pid_status(5)").
func (w *workerProcess) memory(field string) float64 {
	w.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.cmd.Process.Pid))
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		if name != field {
			continue
		}
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
		if err != nil {
			w.t.Fatalf("%s = %q: %v", field, value, err)
		}
		return float64(kib) / 1024
	}
	w.t.Fatalf("the status of the process has no %s", field)
	return 0
}
