package app

import (
	"io/fs"
	"math"
	"runtime/debug"
	"strconv"
	"strings"
)

// heapGrowth is GOGC where a limit holds the heap down when it must. A worker allocates much and keeps little: some 130 KiB
// per message beside a live heap of a few MiB, so that with GOGC at 100 collecting takes a quarter of its CPU time.
const heapGrowth = 400

// SizeHeap lets the garbage collector use the memory of the container: the heap may grow to five times what is live before
// it is collected, and is collected sooner when the memory limit comes near. The limit is GOMEMLIMIT, else nine tenths of
// what the cgroup in the folder cgroup allows (memory.max, or memory/memory.limit_in_bytes of version 1); the rest is for
// memory that is not Go's. GOGC and GOMEMLIMIT win where they are set, and without any limit nothing changes. It returns
// the limit in bytes, or 0. Its effect is on the whole process, so it is called by main.
func SizeHeap(lookup func(string) (string, bool), cgroup fs.FS) int64 {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		allowed, ok := cgroupMemory(cgroup)
		if set, _ := lookup("GOMEMLIMIT"); set != "" || !ok {
			return 0
		}
		limit = allowed / 10 * 9
		debug.SetMemoryLimit(limit)
	}
	if set, _ := lookup("GOGC"); set == "" {
		debug.SetGCPercent(heapGrowth)
	}
	return limit
}

// cgroupMemory returns the limit of this process's cgroup in bytes. Version 1 says "no limit" with a number near 2^63.
func cgroupMemory(cgroup fs.FS) (int64, bool) {
	for _, name := range []string{"memory.max", "memory/memory.limit_in_bytes"} {
		text, err := fs.ReadFile(cgroup, name)
		if err != nil {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return n, err == nil && n > 0 && n < 1<<60
	}
	return 0, false
}
