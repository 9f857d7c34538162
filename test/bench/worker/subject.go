package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/pprof"
	"time"

	"millrace/cmd/worker/app"
)

// sample is what a subject has used so far.
type sample struct {
	CPU     time.Duration `json:"cpu"` // user and system
	Mallocs uint64        `json:"mallocs"`
	Bytes   uint64        `json:"bytes"`  // allocated, ever
	Memory  uint64        `json:"memory"` // that the Go runtime holds now
}

// subject is a process under test, seen from its world. It answers each line on its standard input with a sample, and
// ends when its standard input does.
type subject struct {
	cmd   *exec.Cmd
	input io.WriteCloser
	lines *bufio.Reader
	log   *bytes.Buffer   // its standard error
	ended context.Context // over when the process is
	err   error           // of its end; valid then
}

func startSubject(name string, env []string) (*subject, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	s := &subject{cmd: exec.Command(self, "-subject", name), log: &bytes.Buffer{}}
	s.cmd.Env, s.cmd.Stderr = env, s.log
	if s.input, err = s.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	// A pipe of our own: StdoutPipe must not be read after Wait, and Wait is under way from the beginning.
	output, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stdout, s.lines = write, bufio.NewReader(output)
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	write.Close()
	ended, end := context.WithCancel(context.Background())
	s.ended = ended
	go func() {
		defer end()
		defer output.Close()
		s.err = s.cmd.Wait()
	}()
	return s, nil
}

func (s *subject) sample() (sample, error) {
	if _, err := s.input.Write([]byte("\n")); err != nil {
		return sample{}, fmt.Errorf("ask the subject: %w", err)
	}
	line, err := s.lines.ReadBytes('\n')
	if err != nil {
		return sample{}, fmt.Errorf("hear the subject: %w", err)
	}
	var use sample
	err = json.Unmarshal(line, &use)
	return use, err
}

// stop asks the subject to go and waits for it.
func (s *subject) stop() error {
	s.input.Close()
	select {
	case <-s.ended.Done():
	case <-time.After(30 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.ended.Done()
	}
	if s.err != nil {
		return fmt.Errorf("subject: %w: %s", s.err, lastBytes(s.log.Bytes(), 2000))
	}
	return nil
}

func lastBytes(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// beSubject is the process under test.
func beSubject(ctx context.Context, name string) error {
	loop, ok := map[string]func(context.Context) error{worker: runWorker, bare: runBare, first: runFirst}[name]
	if !ok {
		return fmt.Errorf("no subject is called %q", name)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	profile := os.Getenv("BENCH_PROFILE")
	listening := make(chan error, 1)
	go func() {
		defer stop()
		listening <- answer(os.Stdin, os.Stdout, profile)
	}()
	err := loop(ctx)
	if ctx.Err() == nil {
		return errors.Join(errors.New("the subject ended by itself"), err)
	}
	return errors.Join(err, <-listening)
}

// answer writes a sample for every line until in ends. With a profile, the CPU's begins with the first sample and ends with
// the second, when that of all allocations is written beside it.
func answer(in io.Reader, out io.Writer, profile string) error {
	lines, samples := bufio.NewScanner(in), json.NewEncoder(out)
	for n := 0; lines.Scan(); n++ {
		cpu, err := cpuTime()
		if err != nil {
			return err
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if err := samples.Encode(sample{CPU: cpu, Mallocs: m.Mallocs, Bytes: m.TotalAlloc, Memory: m.Sys - m.HeapReleased}); err != nil {
			return err
		}
		switch {
		case profile == "":
		case n == 0:
			file, err := os.Create(profile + ".cpu")
			if err != nil {
				return fmt.Errorf("create profile: %w", err)
			}
			defer file.Close()
			if err := pprof.StartCPUProfile(file); err != nil {
				return err
			}
		case n == 1:
			pprof.StopCPUProfile()
			if err := writeAllocations(profile + ".allocs"); err != nil {
				return err
			}
		}
	}
	return lines.Err()
}

func writeAllocations(name string) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("create profile: %w", err)
	}
	return errors.Join(pprof.Lookup("allocs").WriteTo(file, 0), file.Close())
}

// runWorker is the container's entry point with another way to be stopped.
func runWorker(ctx context.Context) error {
	sizeHeap()
	cfg, err := app.FromEnv(os.LookupEnv)
	if err != nil {
		return err
	}
	return app.Run(ctx, cfg)
}

// sizeHeap sizes the heap as in a container, of which memoryLimit is the size.
func sizeHeap() { app.SizeHeap(os.LookupEnv, os.DirFS("/sys/fs/cgroup")) }
