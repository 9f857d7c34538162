//go:build !unix

package main

import (
	"errors"
	"time"
)

// cpuTime is known on Unix systems only.
func cpuTime() (time.Duration, error) { return 0, errors.ErrUnsupported }
