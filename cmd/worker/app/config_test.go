package app_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/cmd/worker/app"
	"millrace/test/golden"
)

func env(pairs ...string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		for _, p := range pairs {
			if name, value, _ := strings.Cut(p, "="); name == key {
				return value, true
			}
		}
		return "", false
	}
}

func TestFromEnvDefaults(t *testing.T) {
	c, err := app.FromEnv(env("SERVICEBUS_FULLY_QUALIFIED_NAMESPACE=contoso.servicebus.windows.net", "MILLRACE_QUEUE=q",
		"MILLRACE_RESULTS=https://acct.blob.core.windows.net/results"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Slots != 32 || c.Receivers != 2 || c.Connections != 1 || c.MaxReplicas != 1 || c.Drain != 25*time.Second || c.Catalog != "catalog.yaml" {
		t.Errorf("FromEnv() = %+v, want the documented defaults", c)
	}
}

func TestFromEnvReportsEverythingAtOnce(t *testing.T) {
	const secret = "Endpoint=sb://x/;SharedAccessKeyName=k;SharedAccessKey=CANARY"
	_, err := app.FromEnv(env("SERVICEBUS_CONNECTION_STRING="+secret, "SERVICEBUS_FULLY_QUALIFIED_NAMESPACE=x",
		"MILLRACE_SLOTS=many", "MILLRACE_RECEIVERS=-1", "MILLRACE_CONNECTIONS=1000", "MILLRACE_MAX_REPLICAS=-3", "MILLRACE_DRAIN=soon", "MILLRACE_LOG_LEVEL=loud"))
	if err == nil {
		t.Fatal("FromEnv() = nil error, want one with every problem")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{
		"MILLRACE_QUEUE: is not set", "MILLRACE_RESULTS: is not set", "MILLRACE_SLOTS: cannot be read as a whole number",
		"MILLRACE_DRAIN: cannot be read as a duration", "MILLRACE_LOG_LEVEL: cannot be read as a log level",
		"MILLRACE_RECEIVERS: -1", "MILLRACE_CONNECTIONS: 1000", "MILLRACE_MAX_REPLICAS: -3", "set only one of them",
	} {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, want) }) {
			t.Errorf("no line says %q in:\n%s", want, err)
		}
	}
	if strings.Contains(err.Error(), "CANARY") {
		t.Errorf("the error repeats a secret: %s", err)
	}
}

// TestREADMEHasTheSettings holds the table of cmd/README.md to the tags of Config.
func TestREADMEHasTheSettings(t *testing.T) {
	var b strings.Builder
	b.WriteString("| variable | default | what |\n|---|---|---|\n")
	for _, f := range reflect.VisibleFields(reflect.TypeFor[app.Config]()) {
		tag := f.Tag.Get("env")
		if tag == "" {
			continue
		}
		name, rest, _ := strings.Cut(tag, ",")
		value := "–"
		switch {
		case rest == "required":
			value = "required"
		case strings.HasPrefix(rest, "default="):
			value = "`" + strings.TrimPrefix(rest, "default=") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", name, value, f.Tag.Get("doc"))
	}
	golden.Between(t, "../../README.md", "settings", b.String())
}
