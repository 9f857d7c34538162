package blobtest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/google/go-cmp/cmp"

	"millrace/test/blobtest"
)

// bubble runs f in a synctest bubble with a client that reaches s through memory; retries is azcore's MaxRetries.
func bubble(t *testing.T, s *blobtest.Server, retries int32, f func(t *testing.T, client *azblob.Client)) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipeListener()
		hs := &http.Server{Handler: s}
		served := make(chan error, 1)
		go func() { served <- hs.Serve(ln) }()
		tr := &http.Transport{DialContext: ln.dial}
		client, err := azblob.NewClientFromConnectionString(s.ConnectionString("http://blob"), &azblob.ClientOptions{
			ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: tr}, Retry: policy.RetryOptions{MaxRetries: retries}},
		})
		if err != nil {
			t.Fatal(err)
		}
		f(t, client)
		tr.CloseIdleConnections()
		_ = hs.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

func TestServerFaultRetryAfter(t *testing.T) {
	var events []blobtest.Event
	var mu sync.Mutex
	s := &blobtest.Server{
		Fault: func(r blobtest.Request) *blobtest.Fault {
			if r.Operation == blobtest.OperationPutBlob && r.Attempt <= 2 {
				return &blobtest.Fault{Status: 503, RetryAfter: 30 * time.Second}
			}
			return nil
		},
		Observe: func(ev blobtest.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, ev)
		},
	}
	bubble(t, s, 3, func(t *testing.T, client *azblob.Client) {
		s.Put(account, "docs", "x", nil, nil)
		start := time.Now()
		if _, err := client.UploadBuffer(t.Context(), "docs", "a", []byte("abc"), nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("upload took %s, want 1m0s: two Retry-After of 30 s", took)
		}
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		var got []blobtest.Event
		for _, ev := range events {
			ev.Start, ev.Duration = time.Time{}, 0
			if ev.Status != 201 {
				ev.Sent = 0
			}
			got = append(got, ev)
		}
		put := blobtest.Event{Operation: blobtest.OperationPutBlob, Account: account, Container: "docs", Blob: "a", Received: 3}
		busy, done := put, put
		busy.Status, busy.Code, busy.Faulted, done.Status = 503, "ServerBusy", true, 201
		if diff := cmp.Diff([]blobtest.Event{busy, busy, done}, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestServerFaultStatus(t *testing.T) {
	for _, tc := range []struct {
		fault blobtest.Fault
		code  bloberror.Code
	}{
		{blobtest.Fault{Status: 401}, bloberror.InvalidAuthenticationInfo},
		{blobtest.Fault{Status: 403}, bloberror.AuthorizationPermissionMismatch},
		{blobtest.Fault{Status: 403, Code: "AuthorizationFailure", Message: "no"}, bloberror.AuthorizationFailure},
		{blobtest.Fault{Status: 404}, bloberror.ResourceNotFound},
		{blobtest.Fault{Status: 412}, bloberror.ConditionNotMet},
		{blobtest.Fault{Status: 429, RetryAfter: 1500 * time.Millisecond}, bloberror.ServerBusy},
		{blobtest.Fault{Status: 500}, bloberror.InternalError},
		{blobtest.Fault{Status: 502}, bloberror.InternalError},
	} {
		s := &blobtest.Server{Fault: func(blobtest.Request) *blobtest.Fault { return &tc.fault }}
		client, _ := serve(t, s)
		_, err := client.UploadBuffer(t.Context(), "docs", "a", []byte("abc"), nil)
		wantStatus(t, "UploadBuffer", err, tc.fault.Status, tc.code)
		if s.Stats().Count(blobtest.OperationPutBlob, tc.fault.Status) != 1 {
			t.Errorf("Stats = %v, want one %d", s.Stats().Requests, tc.fault.Status)
		}
	}
}

// The answer to a create is lost; the retry finds the blob: the client must read 409 as possibly its own.
func TestServerFaultAfterEffect(t *testing.T) {
	for name, fault := range map[string]blobtest.Fault{
		"cut":        {AfterEffect: true, Cut: true},
		"500":        {AfterEffect: true, Status: 500},
		"cut before": {Cut: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
				if r.Attempt == 1 && r.Operation == blobtest.OperationPutBlob {
					return &fault
				}
				return nil
			}}
			bubble(t, s, 1, func(t *testing.T, client *azblob.Client) {
				s.Put(account, "docs", "x", nil, nil)
				_, err := client.UploadBuffer(t.Context(), "docs", "a", []byte("abc"), ifNew())
				if fault.AfterEffect {
					wantStatus(t, "UploadBuffer", err, 409, bloberror.BlobAlreadyExists)
				} else if err != nil {
					t.Errorf("UploadBuffer = %v, want nil", err)
				}
				if n := s.Creates(account, "docs", "a"); n != 1 {
					t.Errorf("Creates = %d, want 1", n)
				}
			})
		})
	}
}

func TestServerFaultHang(t *testing.T) {
	s := &blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
		return &blobtest.Fault{Hang: r.Operation == blobtest.OperationGetBlob}
	}}
	bubble(t, s, -1, func(t *testing.T, client *azblob.Client) {
		s.Put(account, "docs", "a", []byte("abc"), nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if _, err := client.DownloadStream(ctx, "docs", "a", nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("DownloadStream = %v, want deadline exceeded", err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("it took %s, want 1h0m0s", took)
		}
		synctest.Wait()
		if n := s.Stats().Count(blobtest.OperationGetBlob, 0); n != 1 {
			t.Errorf("unanswered = %d, want 1", n)
		}
	})
}

func TestServerFaultDelay(t *testing.T) {
	s := &blobtest.Server{Fault: func(blobtest.Request) *blobtest.Fault { return &blobtest.Fault{Delay: 10 * time.Second} }}
	bubble(t, s, -1, func(t *testing.T, client *azblob.Client) {
		s.Put(account, "docs", "a", []byte("abc"), nil)
		start := time.Now()
		if got := read(t, client, "a", nil); string(got) != "abc" {
			t.Errorf("content = %q, want abc", got)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("it took %s, want 10s", took)
		}
	})
}

// A download that breaks off goes on from where it was.
func TestServerFaultCutBody(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	s := &blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
		if r.Operation == blobtest.OperationGetBlob && r.Attempt < 3 {
			return &blobtest.Fault{CutBody: 30_000}
		}
		return nil
	}}
	bubble(t, s, 3, func(t *testing.T, client *azblob.Client) {
		s.Put(account, "docs", "a", body, nil)
		resp, err := client.DownloadStream(t.Context(), "docs", "a", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.NewRetryReader(t.Context(), nil))
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("content = %d bytes, %v, want %d", len(got), err, len(body))
		}
		if n := s.Stats().Count(blobtest.OperationGetBlob); n != 3 {
			t.Errorf("requests = %d, want 3", n)
		}
		_ = resp.Body.Close()
	})
}

// Time in a bubble stands still between events; ETags must not.
func TestServerInBubble(t *testing.T) {
	s := &blobtest.Server{}
	bubble(t, s, -1, func(t *testing.T, client *azblob.Client) {
		if _, err := client.CreateContainer(t.Context(), "docs", nil); err != nil {
			t.Fatal(err)
		}
		first, err := client.UploadBuffer(t.Context(), "docs", "a", []byte("1"), nil)
		if err != nil {
			t.Fatal(err)
		}
		second, err := client.UploadBuffer(t.Context(), "docs", "a", []byte("2"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if *first.ETag == *second.ETag || !first.LastModified.Equal(*second.LastModified) {
			t.Errorf("writes = %s at %s, %s at %s, want two ETags at one time", *first.ETag, first.LastModified, *second.ETag, second.LastModified)
		}
		_, err = client.DownloadStream(t.Context(), "docs", "a", &azblob.DownloadStreamOptions{AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: first.ETag}}})
		wantStatus(t, "DownloadStream of the first state", err, 412, bloberror.ConditionNotMet)

		time.AfterFunc(time.Hour, func() { s.Put(account, "docs", "late", nil, nil) })
		start := time.Now()
		if err := s.Await(t.Context(), func(s *blobtest.Server) bool { _, ok := s.Blob(account, "docs", "late"); return ok }); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("Await took %s, want 1h0m0s", took)
		}
		_, err = client.UploadBuffer(t.Context(), "docs", "late", nil, &azblob.UploadBufferOptions{AccessConditions: &blob.AccessConditions{
			ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfUnmodifiedSince: to.Ptr(start)}}})
		wantStatus(t, "UploadBuffer if unmodified", err, 412, bloberror.ConditionNotMet)
	})
}
