package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"millrace/claimcheck"
)

// mostLines is how many documents are named one by one.
const mostLines = 10

// print writes the summary; the last line of the text form is meant to be read by scripts too.
func (s *summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return encode(w, s)
	}
	var b bytes.Buffer
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
	s.printExceptions(&b)
	if s.Example != nil {
		fmt.Fprintf(&b, "\nthe result of %s, %s:\n", shown(s.Example.Document), s.Example.Name)
		if err := json.Indent(&b, s.Example.Result, "", "  "); err != nil {
			return fmt.Errorf("indent result: %w", err)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "\n%d calls, %d throttled, %.4f USD; %d deliveries over %d receiver links on %d connections; %.1f s\n",
		s.Calls, s.Throttled, s.Cost, s.Deliveries, s.Links, s.Connections, s.Seconds)
	fmt.Fprintf(&b, "demo: %d documents: %d succeeded, %d refused, %d failed, %d dead-lettered, %d lost; peak TPM %d of %d; %d worker cut off, %d calls after a result\n",
		s.Documents, s.Succeeded, s.Refused, s.Failed, s.DeadLettered, s.Lost, s.PeakTPM, s.LimitTPM, s.CutOff, s.CallsAfterResult)
	_, err := b.WriteTo(w)
	return err
}

// printExceptions names the documents that have no answer, and what to do about those that the quota was too small for.
func (s *summary) printExceptions(b *bytes.Buffer) {
	if len(s.Exceptions) == 0 {
		return
	}
	fmt.Fprintln(b, "\nwithout a whole answer:")
	tooSmall := 0
	for i, e := range s.Exceptions {
		if e.Reason == string(claimcheck.ReasonTPMLimit) {
			tooSmall++
		}
		if i < mostLines {
			fmt.Fprintf(b, "  %s: %s\n", shown(e.Document), strings.Join(slices.DeleteFunc([]string{e.Outcome, e.Reason, e.Detail}, isEmpty), ", "))
		}
	}
	if more := len(s.Exceptions) - mostLines; more > 0 {
		fmt.Fprintf(b, "  … and %d more; --json lists all\n", more)
	}
	if tooSmall > 0 {
		fmt.Fprintf(b, "%d of them need more tokens than the %d a minute that one worker may spend: raise --tpm or lower --workers\n", tooSmall, s.share)
	}
}

func isEmpty(s string) bool { return s == "" }

// verdict is what the run promises to be zero.
func (s *summary) verdict() error {
	switch {
	case s.Lost > 0:
		return fmt.Errorf("%d documents have neither a result nor a dead letter", s.Lost)
	case s.CallsAfterResult > 0:
		return fmt.Errorf("the model was called %d times after a result was there", s.CallsAfterResult)
	case s.PeakTPM > s.LimitTPM:
		return fmt.Errorf("%d tokens in one minute, the limit is %d", s.PeakTPM, s.LimitTPM)
	case len(s.LeftOut) > 0:
		return fmt.Errorf("%d files could not be taken and were left out", len(s.LeftOut))
	}
	return nil
}
