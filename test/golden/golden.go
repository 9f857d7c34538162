// Package golden holds generated parts of documentation to what generates them.
package golden

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write generated parts of documentation")

// Between compares what stands in file between the marks "<!-- name: generated -->" and "<!-- /name -->" with want, or
// writes it there with -update.
func Between(t *testing.T, file, name, want string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	from, to := "<!-- "+name+": generated -->\n", "<!-- /"+name+" -->"
	before, rest, begins := strings.Cut(string(data), from)
	got, after, ends := strings.Cut(rest, to)
	switch {
	case !begins || !ends:
		t.Fatalf("%s has no marks for %s", file, name)
	case got == want:
	case !*update:
		t.Errorf("%s: the part %s is out of date; run this test with -update", file, name)
	default:
		if err := os.WriteFile(file, []byte(before+from+want+to+after), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
