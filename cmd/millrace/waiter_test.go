package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/pipe"
)

// waitingRoom is a waiter in a bubble, and the blob store that it looks into.
func waitingRoom(t *testing.T, stderr *bytes.Buffer) (*waiter, *blobtest.Server, *[]string) {
	t.Helper()
	blobs, listener := &blobtest.Server{}, &pipe.Listener{}
	server := &http.Server{Handler: blobs}
	go server.Serve(listener)
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) }}
	t.Cleanup(func() { transport.CloseIdleConnections(); server.Close() })
	blobs.Put(blobtest.DevAccount, "results", "probe", nil, nil)
	url := "http://127.0.0.1:1/" + blobtest.DevAccount
	store, err := claimcheck.NewStore(url+"/results", claimcheck.OpenConnectionString(blobs.ConnectionString("http://127.0.0.1:1")),
		&claimcheck.StoreOptions{Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	w := &waiter{store: store, client: &client{results: url + "/results"}, screen: newScreen(nil, stderr, false, false)}
	w.told = func(e ending) error { told = append(told, e.CorrelationID+" "+e.word()); return nil }
	return w, blobs, &told
}

// receiptsOf are n claims, and write the result of one.
func receiptsOf(t *testing.T, blobs *blobtest.Server, n int) (receipts []receipt, write func(i int)) {
	t.Helper()
	claims := make([]claimcheck.Claim, n)
	for i := range n {
		claims[i] = claimcheck.Claim{
			Tenant: "acme", Model: "m", Blob: fmt.Sprintf("https://acct.blob.core.windows.net/in/acme/%d", i), CorrelationID: fmt.Sprintf("c%04d", i),
		}
		name, err := claims[i].ResultName()
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, receipt{Tenant: "acme", CorrelationID: claims[i].CorrelationID, Result: name})
	}
	return receipts, func(i int) {
		id, _ := claims[i].WorkID()
		body, err := claimcheck.Result{
			Tenant: "acme", Model: "m", CorrelationID: claims[i].CorrelationID, WorkID: id, Outcome: claimcheck.OutcomeSucceeded, Text: "x",
			Input: claimcheck.InputUsed{URL: claims[i].Blob}, CreatedAt: time.Now(),
		}.Encode()
		if err != nil {
			t.Error(err)
		}
		blobs.Put(blobtest.DevAccount, "results", receipts[i].Result, body, nil)
	}
}

func TestWaiterFindsResultsInAnyOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var stderr bytes.Buffer
		w, blobs, told := waitingRoom(t, &stderr)
		const n = 1500
		receipts, write := receiptsOf(t, blobs, n)
		for i := range n { // the last first, which is the worst for a look at the front
			time.AfterFunc(time.Duration(n-i)*20*time.Millisecond, func() { write(i) })
		}
		if err := w.wait(t.Context(), receipts); err != nil {
			t.Fatal(err)
		}
		if len(*told) != n || w.counts["succeeded"] != n || w.verdict(nil) != nil {
			t.Errorf("%d told, counts %v, verdict %v; want %d succeeded", len(*told), w.counts, w.verdict(nil), n)
		}
		if took := time.Since(w.began); took > 45*time.Second {
			t.Errorf("the wait took %s for results that took 30 s", took)
		}
		for _, want := range []string{" a second, about ", " of 1500 done"} {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("progress does not say %q:\n%s", want, stderr.String())
			}
		}
	})
}

func TestWaiterEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, blobs, told := waitingRoom(t, new(bytes.Buffer))
		receipts, write := receiptsOf(t, blobs, 3)
		write(1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := w.wait(ctx, receipts); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(*told, ", "); got != "c0001 succeeded, c0000 missing, c0002 missing" {
			t.Errorf("told %s", got)
		}
		if err := w.verdict(nil); err == nil || !strings.Contains(err.Error(), "2 of 3 claims have no result: 2 missing") {
			t.Errorf("verdict = %v, want one about two missing", err)
		}
	})
}

func TestWaiterOutlivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, blobs, _ := waitingRoom(t, new(bytes.Buffer))
		receipts, write := receiptsOf(t, blobs, 1)
		began := time.Now()
		blobs.Fault = func(blobtest.Request) *blobtest.Fault {
			if since := time.Since(began); since > 5*time.Second && since < 40*time.Second {
				return &blobtest.Fault{Status: 503}
			}
			return nil
		}
		time.AfterFunc(time.Minute, func() { write(0) })
		if err := w.wait(t.Context(), receipts); err != nil {
			t.Errorf("wait over 35 s of outage = %v, want nil", err)
		}
	})
}

func TestWaiterGivesUpOnStorageThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, blobs, _ := waitingRoom(t, new(bytes.Buffer))
		receipts, _ := receiptsOf(t, blobs, 1)
		blobs.Fault = func(blobtest.Request) *blobtest.Fault {
			return &blobtest.Fault{Status: 403, Code: "AuthorizationFailure"}
		}
		err := w.wait(t.Context(), receipts)
		if err == nil || !strings.Contains(err.Error(), "needs the role Storage Blob Data Reader") {
			t.Errorf("wait = %v, want the role that is missing", err)
		}
	})
}

func TestWaiterInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, blobs, told := waitingRoom(t, new(bytes.Buffer))
		receipts, _ := receiptsOf(t, blobs, 2)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Second, func() { cancel(errors.New("somebody stopped it")) })
		err := w.wait(ctx, receipts)
		if want := "interrupted: 0 of 2 claims had a result"; err == nil || err.Error() != want || len(*told) > 0 {
			t.Errorf("wait = %v with %v told, want %q and nothing", err, *told, want)
		}
	})
}

func TestInstant(t *testing.T) {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{
		"90m": "2026-12-01T10:30:00Z", "0s": "2026-12-01T12:00:00Z", "2026-11-30": "2026-11-30T00:00:00Z",
		"2026-11-30T01:02:03+01:00": "2026-11-30T00:02:03Z", "-1h": "", "yesterday": "", "": "",
	} {
		got, err := instant("since", in, now)
		if want == "" {
			if err == nil {
				t.Errorf("instant(%q) = %s, want an error", in, got)
			}
			continue
		}
		if err != nil || got.UTC().Format(time.RFC3339) != want {
			t.Errorf("instant(%q) = %s, %v, want %s", in, got, err, want)
		}
	}
}
