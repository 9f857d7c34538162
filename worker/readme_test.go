package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"millrace/claimcheck"
	"millrace/test/golden"
	"millrace/worker"
)

// verdictRow says in words what the constants cannot.
type verdictRow struct {
	kind    worker.Kind
	meaning string
	result  string
	count   string
}

func verdictRows() []verdictRow {
	return []verdictRow{
		{worker.Answered, "the model answered", "written", "–"},
		{worker.Refused, "the content filter or the model declined", "written", "–"},
		{worker.Failed, "this document can never succeed", "written", "–"},
		{worker.Skipped, "nothing to do", "–", "–"},
		{worker.Poison, "cannot be understood or may not be followed", "–", "–"},
		{worker.Throttled, "the quota is used up for now", "–", "–"},
		{worker.Misconfigured, "identity, permission, deployment or a catalog parameter is wrong", "–", "–"},
		{worker.Infrastructure, "a dependency is out of order", "–", "+1 when abandoned"},
		{worker.Cut, "drain or lost lock", "what was written stays", "+1"},
	}
}

// reasons lists, for a kind, its outcomes with their reasons out of the closed sets of claimcheck.
func reasons(k worker.Kind) string {
	var parts []string
	add := func(name string, rs []claimcheck.Reason) {
		var words []string
		for _, r := range rs {
			words = append(words, string(r))
		}
		text := strings.Join(words, ", ")
		if name != "" && text != "" {
			text = name + ": " + text
		} else if name != "" {
			text = name
		}
		parts = append(parts, text)
	}
	outcomes := map[worker.Kind][]claimcheck.Outcome{
		worker.Answered: {claimcheck.OutcomeSucceeded, claimcheck.OutcomeTruncated},
		worker.Refused:  {claimcheck.OutcomeRefused},
		worker.Failed: {claimcheck.OutcomeRejected, claimcheck.OutcomeUnreadable, claimcheck.OutcomeExpired,
			claimcheck.OutcomeSuperseded},
	}
	switch k {
	case worker.Skipped:
		add("", claimcheck.SkipReasons())
	case worker.Poison:
		add("", claimcheck.PoisonReasons())
	case worker.Cut:
		parts = append(parts, worker.Interrupted(worker.ErrDraining).Reason+", "+worker.Interrupted(worker.ErrLockLost).Reason)
	case worker.Throttled, worker.Misconfigured, worker.Infrastructure:
		parts = append(parts, "the dependency")
	}
	for _, o := range outcomes[k] {
		add(string(o), o.Reasons())
	}
	return strings.Join(parts, "; ")
}

func settlement(k worker.Kind) string {
	switch s := k.Settlement(); {
	case k == worker.Infrastructure:
		return "hold; abandon if unexplained or past the hold"
	case k == worker.Cut:
		return "abandon; nothing with a lost lock"
	default:
		return string(s)
	}
}

func TestREADMEHasTheVerdictTable(t *testing.T) {
	rows := verdictRows()
	if len(rows) != len(worker.Kinds()) {
		t.Fatalf("the table describes %d kinds, there are %d", len(rows), len(worker.Kinds()))
	}
	var b strings.Builder
	b.WriteString("| verdict | means | outcome and reasons | message | result | delivery count |\n|---|---|---|---|---|---|\n")
	seen := map[claimcheck.Outcome]bool{}
	for i, k := range worker.Kinds() {
		if rows[i].kind != k {
			t.Fatalf("row %d describes %v, want %v", i, rows[i].kind, k)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", k, rows[i].meaning, reasons(k), settlement(k), rows[i].result, rows[i].count)
		for _, o := range claimcheck.Outcomes() {
			if strings.Contains(reasons(k), string(o)) {
				seen[o] = true
			}
		}
	}
	for _, o := range claimcheck.Outcomes() {
		if !seen[o] {
			t.Errorf("outcome %s belongs to no verdict", o)
		}
	}
	golden.Between(t, "README.md", "verdicts", b.String())
}
