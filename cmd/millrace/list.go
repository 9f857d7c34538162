package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/claimcheck"
)

// filterFlags are those of every command that picks results.
type filterFlags struct {
	tenant, correlation, since string
	outcomes, reasons          []string
}

func (f *filterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "tenant of the results")
	flags.StringVar(&f.correlation, "correlation-id", "", "only results with this correlation id")
	flags.StringSliceVar(&f.outcomes, "outcome", nil, "only these outcomes, such as refused,failed")
	flags.StringSliceVar(&f.reasons, "reason", nil, "only these reasons, such as prompt_filter")
	flags.StringVar(&f.since, "since", "", "only results written since then: a duration such as 90m, or a time")
	completeNames(cmd)
}

// read returns the filter and the prefix of the names.
func (f *filterFlags) read(now time.Time) (filter, string, error) {
	var out filter
	var err error
	if f.tenant == "" {
		return out, "", usageError{errors.New("--tenant is missing: name the tenant of the results")}
	}
	correlation := f.correlation
	if correlation == "" {
		correlation = "x"
	}
	if _, err := claimcheck.ResultName(f.tenant, correlation, strings.Repeat("0", 64)); err != nil {
		return out, "", usageError{err}
	}
	prefix := f.tenant + "/"
	if f.correlation != "" {
		prefix += f.correlation + "/"
	}
	if out.outcomes, err = outcomesOf("outcome", f.outcomes); err != nil {
		return out, "", err
	}
	if out.reasons, err = reasonsOf(f.reasons); err != nil {
		return out, "", err
	}
	if f.since != "" {
		out.since, err = instant("since", f.since, now)
	}
	return out, prefix, err
}

func reasonsOf(list []string) (map[string]bool, error) {
	set := make(map[string]bool)
	for _, word := range list {
		word = strings.TrimSpace(word)
		known := slices.ContainsFunc(claimcheck.Outcomes(), func(o claimcheck.Outcome) bool {
			return slices.Contains(o.Reasons(), claimcheck.Reason(word))
		})
		if !known {
			var all []string
			for _, o := range claimcheck.Outcomes() {
				for _, r := range o.Reasons() {
					all = append(all, string(r))
				}
			}
			return nil, usageError{fmt.Errorf("--reason %q: use one of %s", word, strings.Join(all, ", "))}
		}
		set[word] = true
	}
	return set, nil
}

// row is a result in a list: everything but the answer.
type row struct {
	Name          string               `json:"name"`
	CreatedAt     time.Time            `json:"created_at"`
	Tenant        string               `json:"tenant"`
	Model         string               `json:"model"`
	CorrelationID string               `json:"correlation_id,omitempty"`
	Run           string               `json:"run,omitempty"`
	Outcome       claimcheck.Outcome   `json:"outcome"`
	Reason        claimcheck.Reason    `json:"reason,omitempty"`
	Detail        string               `json:"detail,omitempty"`
	Input         claimcheck.InputUsed `json:"input"`
	InputTokens   int                  `json:"input_tokens"`
	OutputTokens  int                  `json:"output_tokens"`
	Cost          float64              `json:"cost,omitempty"`
	Currency      string               `json:"currency,omitempty"`
}

func rowOf(f found) row {
	r := f.result
	return row{
		f.name, r.CreatedAt, r.Tenant, r.Model, r.CorrelationID, r.Run, r.Outcome, r.Reason, r.Detail, r.Input,
		r.Usage.Input, r.Usage.Output, r.Cost.Amount, r.Cost.Currency,
	}
}

const (
	rowHead   = "%-20s  %-16s  %-10s  %-19s  %9s  %9s  %s"
	rowLine   = "%-20s  %-16s  %-10s  %-19s  %9d  %9d  %s"
	rowOfTime = "2006-01-02T15:04:05Z"
)

func resultsListCommand() *cobra.Command {
	var f filterFlags
	var limit int
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the results of a tenant",
		Long: `Lists the results of a tenant in the order of their names. Every result that --since lets pass is read, since its outcome
is inside. failed stands for the outcomes rejected, unreadable, expired and superseded. --json prints an object for each,
without the answer.`,
		Example: `  millrace results list --tenant fernhill --since 24h --outcome refused,failed
  millrace results list --tenant fernhill --json | jq -s 'map(.cost) | add'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			filter, prefix, err := f.read(time.Now())
			if err != nil {
				return err
			}
			if limit < 0 {
				return usageError{fmt.Errorf("--limit %d: is negative", limit)}
			}
			a, err := openArchiveFrom(os.LookupEnv)
			if err != nil {
				return err
			}
			defer a.close()
			return a.table(cmd.Context(), prefix, filter, limit, newLineScreen(cmd, asJSON))
		},
	}
	f.add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 0, "print at most so many; 0 for all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each result")
	return cmd
}

// table prints the results, the first ones while others are being read.
func (a *archive) table(ctx context.Context, prefix string, f filter, limit int, s *screen) error {
	n := 0
	skipped, err := a.list(ctx, prefix, f, func(r found) error {
		if n++; limit > 0 && n > limit {
			return errEnough
		}
		row := rowOf(r)
		if s.json {
			return encode(s.out, row)
		}
		if n == 1 {
			if err := s.say(rowHead, "CREATED", "MODEL", "OUTCOME", "REASON", "TOKENS IN", "OUT", "NAME"); err != nil {
				return err
			}
		}
		return s.say(rowLine, row.CreatedAt.Format(rowOfTime), row.Model, row.Outcome, dash(string(row.Reason)), row.InputTokens, row.OutputTokens, row.Name)
	})
	if errors.Is(err, errEnough) {
		s.note("… and more: raise --limit")
		err = nil
	}
	if err == nil && n == 0 {
		s.note("no results in %s/%s", a.url, prefix)
	}
	if skipped > 0 {
		s.note("%d blobs are no results that this version reads", skipped)
	}
	return err
}
