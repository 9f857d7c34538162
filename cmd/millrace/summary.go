package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/sbtest"
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

	Outcomes   []outcomeRow `json:"outcomes"`
	Exceptions []exception  `json:"not_succeeded,omitempty"`
	Renamed    []renaming   `json:"renamed,omitempty"`
	LeftOut    []leftOut    `json:"left_out,omitempty"`
	Example    *example     `json:"example,omitempty"`

	share int // what one worker may spend in a minute
}

// exception is a document without an answer.
type exception struct {
	Document string `json:"document"`
	Outcome  string `json:"outcome"`
	Reason   string `json:"reason,omitempty"`
	Detail   string `json:"detail,omitempty"`
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
func (l *lab) judge(ctx context.Context, sent *shipment) (*summary, error) {
	store, err := l.store()
	if err != nil {
		return nil, err
	}
	dead := make(map[string]sbtest.Message) // by correlation id
	for _, m := range l.bus.Peek(sampleQueue+"/$DeadLetterQueue", 0) {
		dead[m.CorrelationID] = m
	}
	s := &summary{
		Documents: len(sent.claims), Renamed: sent.renamed, LeftOut: sent.left,
		LimitTPM: l.tpm, PeakTPM: l.model.PeakMinute(sampleDeployment), share: l.share(),
	}
	rows := make(map[outcomeRow]*outcomeRow)
	for _, c := range sent.claims {
		found := exception{Document: c.name, Outcome: "lost"}
		var usage claimcheck.TokenUsage
		if m, ok := dead[c.correlation]; ok {
			found.Outcome, found.Reason, found.Detail = "dead-lettered", m.DeadLetterReason(), m.DeadLetterErrorDescription()
			s.DeadLettered++
		} else if result, err := l.resultOf(ctx, store, c); err != nil {
			return nil, err
		} else if result != nil {
			found.Outcome, found.Reason, found.Detail = string(result.Outcome), string(result.Reason), result.Detail
			usage = result.Usage
			s.count(result)
			if s.Example == nil && result.Outcome == claimcheck.OutcomeSucceeded {
				blob, _ := l.blobs.Blob(blobtest.DevAccount, resultContainer, c.result)
				s.Example = &example{Document: c.name, Name: c.result, Result: blob.Body}
			}
		} else {
			s.Lost++
		}
		if found.Outcome != string(claimcheck.OutcomeSucceeded) {
			s.Exceptions = append(s.Exceptions, found)
		}
		key := outcomeRow{Tenant: c.tenant, Model: c.model, Outcome: found.Outcome, Reason: found.Reason}
		row, ok := rows[key]
		if !ok {
			row = &outcomeRow{Tenant: c.tenant, Model: c.model, Outcome: found.Outcome, Reason: found.Reason}
			rows[key] = row
		}
		row.Count++
		row.Input += usage.Input
		row.Output += usage.Output
	}
	for _, row := range rows {
		s.Outcomes = append(s.Outcomes, *row)
	}
	slices.SortFunc(s.Outcomes, func(a, b outcomeRow) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Outcome, b.Outcome), cmp.Compare(a.Reason, b.Reason))
	})
	l.measure(s, sent.claims)
	return s, nil
}

// resultOf reads the result of a claim; nil if there is none.
func (l *lab) resultOf(ctx context.Context, store *claimcheck.Store, c submission) (*claimcheck.Result, error) {
	if c.result == "" {
		return nil, nil
	}
	result, err := store.Read(ctx, c.result)
	if errors.Is(err, claimcheck.ErrNoResult) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read result of %s: %w", shown(c.name), err)
	}
	return result, nil
}

// count adds a result to the totals.
func (s *summary) count(r *claimcheck.Result) {
	s.Results++
	s.Cost += r.Cost.Amount
	switch r.Outcome {
	case claimcheck.OutcomeSucceeded, claimcheck.OutcomeTruncated:
		s.Succeeded++
	case claimcheck.OutcomeRefused:
		s.Refused++
	default:
		s.Failed++
	}
}

// measure fills in what the emulators counted.
func (l *lab) measure(s *summary, claims []submission) {
	s.CallsAfterResult = l.callsAfterResult(claims)
	calls := l.model.Stats()
	s.Calls, s.Throttled = calls.Calls, calls.Tokens429+calls.Requests429+calls.Oversize429
	queue := l.bus.Stats(sampleQueue)
	s.Deliveries, s.Links = queue.Deliveries, queue.Attaches
	s.Connections = l.bus.Totals().Connections - 1 // without the one that sent the claims
	l.fleet.mu.Lock()
	defer l.fleet.mu.Unlock()
	s.CutOff = l.fleet.cutOff
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
