package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// The subjects.
const (
	worker = "worker" // ours
	bare   = "bare"
	first  = "first"
)

var subjects = []string{worker, bare, first}

// cell is one point of the matrix.
type cell struct {
	Slots    int           `json:"slots"`
	Latency  time.Duration `json:"latency"` // of the model
	Messages int           `json:"messages"`
}

// fullCells takes two to three seconds per run on two cores.
func fullCells() []cell {
	const slow = 50 * time.Millisecond
	return []cell{
		{1, 0, 1000}, {16, 0, 2500}, {64, 0, 2500},
		{1, slow, 50}, {16, slow, 800}, {64, slow, 2000},
	}
}

// smokeCells fills every slot a few times.
func smokeCells() []cell {
	cells := fullCells()
	for i := range cells {
		cells[i].Messages = 10 + 3*cells[i].Slots
	}
	return cells
}

// spec describes one run.
type spec struct {
	Cell    cell   `json:"cell"`
	Subject string `json:"subject"`
	Profile string `json:"profile,omitzero"` // names of profiles without .cpu and .allocs
}

// figures are what one run measured, between 10 % and 100 % of its messages.
type figures struct {
	Rate        float64 `json:"rate"`        // messages per second
	CPU         float64 `json:"cpu"`         // µs of the subject per message, user and system
	Allocations float64 `json:"allocations"` // objects of the subject per message
	Bytes       float64 `json:"bytes"`       // allocated by the subject per message
	Memory      uint64  `json:"memory"`      // held by the subject's Go runtime at the end, bytes
	Connections int     `json:"connections"` // opened in the whole run: AMQP and HTTP
}

// results are the figures of every round by cell and subject, in the order of the rounds.
type results struct {
	cells  []cell
	rounds int
	took   time.Duration
	of     map[cell]map[string][]figures
}

// plan is what to run.
type plan struct {
	cells   []cell
	rounds  int
	budget  time.Duration
	profile string
}

// order returns the subjects in the order of a round. It turns round by round, so that no subject always follows the same
// one and a machine that gets slower or faster favours none.
func order(round int) []string {
	turned := slices.Clone(subjects)
	if round%2 == 1 {
		slices.Reverse(turned)
	}
	by := round / 2 % len(turned)
	return append(turned[by:], turned[:by]...)
}

// run runs the rounds; all subjects of a cell run one right after the other. What goes on is told to progress.
func (p plan) run(ctx context.Context, progress io.Writer) (*results, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own program: %w", err)
	}
	r := &results{cells: p.cells, of: make(map[cell]map[string][]figures)}
	for _, c := range p.cells {
		r.of[c] = make(map[string][]figures)
	}
	began := time.Now()
	for round := range p.rounds {
		if spent := time.Since(began); round > 0 && spent+spent/time.Duration(round) > p.budget {
			fmt.Fprintf(progress, "%d rounds in %.0f s; another one would go over the budget\n", round, spent.Seconds())
			break
		}
		for _, c := range p.cells {
			for _, subject := range order(round) {
				s := spec{Cell: c, Subject: subject}
				if p.profile != "" {
					name := fmt.Sprintf("%s-%d-%dms-%d", subject, c.Slots, c.Latency.Milliseconds(), round+1)
					s.Profile = filepath.Join(p.profile, name)
				}
				f, err := runWorld(ctx, self, s)
				if err != nil {
					return nil, fmt.Errorf("%s, %d slots, model %v: %w", subject, c.Slots, c.Latency, err)
				}
				fmt.Fprintf(progress, "round %d: %2d slots, model %2d ms, %-6s %5.0f msg/s %5.0f µs\n",
					round+1, c.Slots, c.Latency.Milliseconds(), subject, f.Rate, f.CPU)
				r.of[c][subject] = append(r.of[c][subject], f)
			}
		}
		r.rounds = round + 1
	}
	r.took = time.Since(began)
	return r, nil
}

// runWorld runs s in a process of its own.
func runWorld(ctx context.Context, self string, s spec) (figures, error) {
	description, err := json.Marshal(s)
	if err != nil {
		return figures{}, err
	}
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "-world", string(description))
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return figures{}, fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
	}
	var f figures
	if err := json.Unmarshal(out.Bytes(), &f); err != nil {
		return figures{}, fmt.Errorf("read figures: %w", err)
	}
	return f, nil
}
