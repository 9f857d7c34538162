package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
)

// summary is what a run came to, counted by the emulators and read from the results.
type summary struct {
	Documents    int `json:"documents"`
	Succeeded    int `json:"succeeded"` // truncated ones among them
	Refused      int `json:"refused"`
	Failed       int `json:"failed"`
	DeadLettered int `json:"dead_lettered"`
	Lost         int `json:"lost"`

	PeakTPM          int     `json:"peak_tpm"`
	LimitTPM         int     `json:"limit_tpm"`
	Calls            int     `json:"calls"`
	Throttled        int     `json:"throttled"` // calls answered with 429
	CallsAfterResult int     `json:"calls_after_result"`
	CutOff           int     `json:"workers_cut_off"`
	Connections      int     `json:"connections"`
	Links            int     `json:"receiver_links"`
	Deliveries       int     `json:"deliveries"`
	Results          int     `json:"results"`
	Cost             float64 `json:"cost_usd"`
	Seconds          float64 `json:"seconds"`

	Outcomes []outcomeRow `json:"outcomes"`
	Example  *example     `json:"example,omitempty"`
}

// outcomeRow counts one outcome of one alias.
type outcomeRow struct {
	Tenant  string `json:"tenant"`
	Model   string `json:"model"`
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	Count   int    `json:"count"`
	Input   int    `json:"input_tokens"`
	Output  int    `json:"output_tokens"`
}

type example struct {
	Document string          `json:"document"`
	Name     string          `json:"name"`
	Result   json.RawMessage `json:"result"`
}

// judge looks at every claim: its result, its dead letter, or neither.
func (l *lab) judge(ctx context.Context, claims []submission) (*summary, error) {
	store, err := l.store()
	if err != nil {
		return nil, err
	}
	dead := make(map[string]string) // correlation id → reason
	for _, m := range l.bus.Peek(sampleQueue+"/$DeadLetterQueue", len(claims)+1) {
		dead[m.CorrelationID] = m.DeadLetterReason()
	}
	s := &summary{Documents: len(claims), LimitTPM: l.tpm, PeakTPM: l.model.PeakMinute(sampleDeployment)}
	rows := make(map[outcomeRow]*outcomeRow)
	count := func(c submission, outcome, reason string, usage claimcheck.TokenUsage) {
		key := outcomeRow{Tenant: c.tenant, Model: c.model, Outcome: outcome, Reason: reason}
		row, ok := rows[key]
		if !ok {
			row = &outcomeRow{Tenant: c.tenant, Model: c.model, Outcome: outcome, Reason: reason}
			rows[key] = row
		}
		row.Count++
		row.Input += usage.Input
		row.Output += usage.Output
	}
	for _, c := range claims {
		if reason, ok := dead[c.correlation]; ok {
			s.DeadLettered++
			count(c, "dead-lettered", reason, claimcheck.TokenUsage{})
			continue
		}
		result, err := store.Read(ctx, c.result)
		if errors.Is(err, claimcheck.ErrNoResult) || c.result == "" {
			s.Lost++
			count(c, "lost", "", claimcheck.TokenUsage{})
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read result of %s: %w", c.name, err)
		}
		s.Results++
		s.Cost += result.Cost.Amount
		switch result.Outcome {
		case claimcheck.OutcomeSucceeded, claimcheck.OutcomeTruncated:
			s.Succeeded++
		case claimcheck.OutcomeRefused:
			s.Refused++
		default:
			s.Failed++
		}
		count(c, string(result.Outcome), string(result.Reason), result.Usage)
		if s.Example == nil && result.Outcome == claimcheck.OutcomeSucceeded {
			blob, _ := l.blobs.Blob(blobtest.DevAccount, resultContainer, c.result)
			s.Example = &example{Document: c.name, Name: c.result, Result: blob.Body}
		}
	}
	for _, row := range rows {
		s.Outcomes = append(s.Outcomes, *row)
	}
	slices.SortFunc(s.Outcomes, func(a, b outcomeRow) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
	})
	s.CallsAfterResult = l.callsAfterResult(claims)
	calls := l.model.Stats()
	s.Calls, s.Throttled = calls.Calls, calls.Tokens429+calls.Requests429+calls.Oversize429
	queue := l.bus.Stats(sampleQueue)
	s.Deliveries, s.Links = queue.Deliveries, queue.Attaches
	s.Connections = l.bus.Totals().Connections - 1 // without the one that sent the claims
	l.fleet.mu.Lock()
	s.CutOff = l.fleet.cutOff
	l.fleet.mu.Unlock()
	return s, nil
}

// callsAfterResult counts the requests that reached the model after the result of their document was there. Documents
// of equal content cannot be told apart by the model, so their calls are judged by the last of their results.
func (l *lab) callsAfterResult(claims []submission) int {
	answered := make(map[string]time.Time)
	for _, c := range claims {
		if blob, ok := l.blobs.Blob(blobtest.DevAccount, resultContainer, c.result); ok && blob.Created.After(answered[c.sha256]) {
			answered[c.sha256] = blob.Created
		}
	}
	n := 0
	for sum, created := range answered {
		for _, arrival := range l.model.Arrivals(sum) {
			if arrival.After(created) {
				n++
			}
		}
	}
	return n
}

// copyResults writes every result below dir under its own name.
func (l *lab) copyResults(dir string) error {
	for _, name := range l.blobs.List(blobtest.DevAccount, resultContainer, "") {
		blob, ok := l.blobs.Blob(blobtest.DevAccount, resultContainer, name)
		if !ok {
			continue
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("copy results: %w", err)
		}
		if err := os.WriteFile(file, blob.Body, 0o644); err != nil {
			return fmt.Errorf("copy results: %w", err)
		}
	}
	return nil
}

// print writes the summary; the last line of the text form is meant to be read by scripts too.
func (s *summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return e.Encode(s)
	}
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nTENANT\tMODEL\tOUTCOME\tREASON\tDOCUMENTS\tTOKENS IN\tTOKENS OUT")
	for _, r := range s.Outcomes {
		reason := r.Reason
		if reason == "" {
			reason = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%d\t%d\n", r.Tenant, r.Model, r.Outcome, reason, r.Count, r.Input, r.Output)
	}
	t.Flush()
	if s.Example != nil {
		var pretty any
		if err := json.Unmarshal(s.Example.Result, &pretty); err == nil {
			text, _ := json.MarshalIndent(pretty, "", "  ")
			fmt.Fprintf(&b, "\nthe result of %s, %s:\n%s\n", s.Example.Document, s.Example.Name, text)
		}
	}
	fmt.Fprintf(&b, "\n%d calls, %d throttled, %.4f USD; %d deliveries over %d receiver links on %d connections; %.1f s\n",
		s.Calls, s.Throttled, s.Cost, s.Deliveries, s.Links, s.Connections, s.Seconds)
	fmt.Fprintf(&b, "demo: %d documents: %d succeeded, %d refused, %d failed, %d dead-lettered, %d lost; peak TPM %d of %d; %d worker cut off, %d calls after a result\n",
		s.Documents, s.Succeeded, s.Refused, s.Failed, s.DeadLettered, s.Lost, s.PeakTPM, s.LimitTPM, s.CutOff, s.CallsAfterResult)
	_, err := io.WriteString(w, b.String())
	return err
}

// verdict is what the run promises to be zero.
func (s *summary) verdict() error {
	switch {
	case s.Lost > 0:
		return fmt.Errorf("%d documents have neither a result nor a dead letter", s.Lost)
	case s.CallsAfterResult > 0:
		return fmt.Errorf("the model was called %d times after a result was there", s.CallsAfterResult)
	case s.PeakTPM > s.LimitTPM:
		return fmt.Errorf("%d tokens in one minute, the limit is %d", s.PeakTPM, s.LimitTPM)
	}
	return nil
}
