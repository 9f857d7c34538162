package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestSummaryPrintSaysWhatToDo(t *testing.T) {
	s := &summary{Documents: 12, Failed: 12, LimitTPM: 2000, CutOff: 1, share: 500}
	for i := range 12 {
		s.Exceptions = append(s.Exceptions, exception{Document: fmt.Sprintf("\x1b]%02d", i), Outcome: "rejected", Reason: "tpm_limit", Detail: "the request needs 512 tokens"})
	}
	var b bytes.Buffer
	if err := s.print(&b, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`  "\x1b]09": rejected, tpm_limit, the request needs 512 tokens` + "\n",
		"  … and 2 more; --json lists all\n",
		"12 of them need more tokens than the 500 a minute that one worker may spend: raise --tpm or lower --workers\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("print() does not say %q:\n%s", want, b.String())
		}
	}
	if want := lastLine(12, 0, 0, 12, 0); !want.MatchString(b.String()) {
		t.Errorf("the last line is not %s in:\n%s", want, b.String())
	}
}

func TestSummaryVerdict(t *testing.T) {
	for _, tc := range []struct {
		name string
		s    summary
		want string // in the error, "" for none
	}{
		{"all well", summary{Documents: 3, Succeeded: 3, PeakTPM: 10, LimitTPM: 10}, ""},
		{"refusals and failures are results", summary{Documents: 3, Refused: 1, Failed: 1, DeadLettered: 1}, ""},
		{"lost", summary{Documents: 1, Lost: 1}, "1 documents have neither"},
		{"called again", summary{CallsAfterResult: 2}, "called 2 times after"},
		{"over the limit", summary{PeakTPM: 11, LimitTPM: 10}, "11 tokens in one minute, the limit is 10"},
		{"left out", summary{LeftOut: []leftOut{{"a", "gone"}}}, "1 files could not be taken"},
	} {
		err := tc.s.verdict()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: verdict() = %v, want %q", tc.name, err, tc.want)
		}
	}
}
