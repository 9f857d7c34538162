package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"
)

// report writes the table and the smallest ratios.
func report(out io.Writer, r *results) error {
	fmt.Fprintf(out, "%d rounds in %.0f s; %d cores, %s, %s/%s; documents of %d bytes\n", r.rounds, r.took.Seconds(), runtime.NumCPU(),
		runtime.Version(), runtime.GOOS, runtime.GOARCH, documentSize)
	fmt.Fprintf(out, "median (range) of the rounds; ratios are medians of the ratios within a round\n\n")
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "slots\tmodel\tsubject\tmsg/s\t÷ bare\tCPU µs/msg\t÷ bare\tallocs/msg\tKiB/msg\tmem MiB\tconns")
	for _, c := range r.cells {
		for _, subject := range subjects {
			of, base := r.of[c][subject], r.of[c][bare]
			fmt.Fprintf(t, "%d\t%d ms\t%s\t%s\t%.2f\t%s\t%.2f\t%.0f\t%.0f\t%.0f\t%.0f\n", c.Slots, c.Latency.Milliseconds(), subject,
				spread(of, rate), ratio(of, base, rate), spread(of, cpu), ratio(of, base, cpu),
				median(of, func(f figures) float64 { return f.Allocations }),
				median(of, func(f figures) float64 { return f.Bytes / (1 << 10) }),
				median(of, func(f figures) float64 { return float64(f.Memory) / (1 << 20) }),
				median(of, func(f figures) float64 { return float64(f.Connections) }))
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nmessages/s, worker ÷ first: min ratio %s\n", r.least(func(of map[string][]figures) float64 {
		return ratio(of[worker], of[first], rate)
	}))
	fmt.Fprintf(out, "CPU per message, bare ÷ worker: min ratio %s\n", r.least(func(of map[string][]figures) float64 {
		return ratio(of[bare], of[worker], cpu)
	}))
	fmt.Fprintf(out, "CPU per message, first ÷ worker: min ratio %s\n", r.least(func(of map[string][]figures) float64 {
		return ratio(of[first], of[worker], cpu)
	}))
	_, err := fmt.Fprintf(out, "bench-worker: min ratio %s\n", r.least(func(of map[string][]figures) float64 {
		return ratio(of[worker], of[bare], rate)
	}))
	return err
}

func rate(f figures) float64 { return f.Rate }
func cpu(f figures) float64  { return f.CPU }

// least names the cell in which value is smallest.
func (r *results) least(value func(map[string][]figures) float64) string {
	least, at := math.Inf(1), cell{}
	for _, c := range r.cells {
		if v := value(r.of[c]); v < least {
			least, at = v, c
		}
	}
	return fmt.Sprintf("%.2f (slots %d, model %d ms)", least, at.Slots, at.Latency/time.Millisecond)
}

// ratio is the median over the rounds of a ÷ b.
func ratio(a, b []figures, of func(figures) float64) float64 {
	ratios := make([]float64, min(len(a), len(b)))
	for i := range ratios {
		ratios[i] = of(a[i]) / of(b[i])
	}
	return middle(ratios)
}

func median(all []figures, of func(figures) float64) float64 { return middle(values(all, of)) }

// spread is the median and, of more than one round, the range.
func spread(all []figures, of func(figures) float64) string {
	v := values(all, of)
	if len(v) < 2 {
		return fmt.Sprintf("%.0f", middle(v))
	}
	return fmt.Sprintf("%.0f (%.0f-%.0f)", middle(v), slices.Min(v), slices.Max(v))
}

func values(all []figures, of func(figures) float64) []float64 {
	v := make([]float64, len(all))
	for i, f := range all {
		v[i] = of(f)
	}
	return v
}

// middle is the median of v, the mean of the two middle values if their number is even, and NaN of none.
func middle(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
