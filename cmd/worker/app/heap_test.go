package app_test

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"

	"millrace/cmd/worker/app"
)

// TestSizeHeap holds who decides: the environment, else the container, else nobody.
func TestSizeHeap(t *testing.T) {
	const percent, mib = 100, 1 << 20
	file := func(name, text string) fstest.MapFS { return fstest.MapFS{name: {Data: []byte(text)}} }
	for _, tc := range []struct {
		name    string
		env     []string
		runtime int64 // limit the process already has, as from GOMEMLIMIT
		cgroup  fstest.MapFS
		limit   int64
		percent int
	}{
		{"a container", nil, math.MaxInt64, file("memory.max", "268435456\n"), 268435456 / 10 * 9, 400},
		{"a container of version 1", nil, math.MaxInt64, file("memory/memory.limit_in_bytes", "104857600\n"), 100 * mib / 10 * 9, 400},
		{"no limit", nil, math.MaxInt64, file("memory.max", "max\n"), 0, percent},
		{"no limit of version 1", nil, math.MaxInt64, file("memory/memory.limit_in_bytes", "9223372036854771712\n"), 0, percent},
		{"no cgroup", nil, math.MaxInt64, fstest.MapFS{}, 0, percent},
		{"GOMEMLIMIT", []string{"GOMEMLIMIT=64MiB"}, 64 * mib, file("memory.max", "268435456\n"), 64 * mib, 400},
		{"GOMEMLIMIT off", []string{"GOMEMLIMIT=off"}, math.MaxInt64, file("memory.max", "268435456\n"), 0, percent},
		{"GOGC", []string{"GOGC=50"}, math.MaxInt64, file("memory.max", "268435456\n"), 268435456 / 10 * 9, percent},
	} {
		t.Run(tc.name, func(t *testing.T) {
			oldLimit, oldPercent := debug.SetMemoryLimit(tc.runtime), debug.SetGCPercent(percent)
			defer func() { debug.SetMemoryLimit(oldLimit); debug.SetGCPercent(oldPercent) }()
			got := app.SizeHeap(env(tc.env...), tc.cgroup)
			want := tc.limit
			if want == 0 {
				want = tc.runtime
			}
			if limit := debug.SetMemoryLimit(-1); got != tc.limit || limit != want {
				t.Errorf("SizeHeap() = %d with the limit at %d, want %d with %d", got, limit, tc.limit, want)
			}
			if got := debug.SetGCPercent(percent); got != tc.percent {
				t.Errorf("GOGC after SizeHeap() = %d, want %d", got, tc.percent)
			}
		})
	}
}
