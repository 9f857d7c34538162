package main

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"millrace/test/sbtest"
)

// openOutbox connects to a broker whose messages have at most limit bytes.
func openOutbox(t *testing.T, limit int64) (*outbox, *sbtest.Server) {
	t.Helper()
	bus := &sbtest.Server{MaxMessageSize: limit}
	t.Cleanup(func() { bus.Close() })
	if err := bus.CreateQueue("q", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Listen("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	client, err := azservicebus.NewClientFromConnectionString(bus.ConnectionString(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeBus(t.Context(), client) })
	sender, err := client.NewSender("q", nil)
	if err != nil {
		t.Fatal(err)
	}
	return &outbox{sender: sender}, bus
}

func TestOutboxFillsBatches(t *testing.T) {
	o, bus := openOutbox(t, 4096)
	for i := range 100 {
		if err := o.add(t.Context(), message(fmt.Sprint(i), "c", make([]byte, 200))); err != nil {
			t.Fatal(err)
		}
	}
	if o.sent == 0 || o.sent == 100 {
		t.Errorf("%d messages sent before the last batch, want some", o.sent)
	}
	if _, err := o.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := bus.Stats("q").Active; got != 100 || o.sent != 100 {
		t.Errorf("%d messages in the queue, %d counted, want 100", got, o.sent)
	}
}

func TestOutboxNamesSizeAndLimit(t *testing.T) {
	o, bus := openOutbox(t, 1000)
	err := o.add(t.Context(), message("large", "c", make([]byte, 2000)))
	var size *sizeError
	if !errors.As(err, &size) {
		t.Fatalf("add of a message that is too large = %v, want a *sizeError", err)
	}
	if size.size < 2000 || size.size > 2400 || size.limit != 1000 {
		t.Errorf("sizeError = %+v, want a size a little above 2000 and a limit of 1000", size)
	}
	if want := "the queue's limit is 1000; "; !strings.Contains(err.Error(), want) {
		t.Errorf("it says %q, want %q", err, want)
	}
	if got := bus.Stats("q").Active; got != 0 {
		t.Errorf("%d messages in the queue, want none", got)
	}
}
