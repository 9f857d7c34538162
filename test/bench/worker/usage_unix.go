//go:build unix

package main

import (
	"os"
	"syscall"
	"time"
)

// cpuTime returns the user and system time of this process.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, os.NewSyscallError("getrusage", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
