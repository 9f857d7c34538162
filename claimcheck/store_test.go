package claimcheck_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azpolicy "github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/go-cmp/cmp"

	"millrace/claimcheck"
	"millrace/test/blobtest"
	"millrace/test/pipe"
)

const (
	account = "http://127.0.0.1:10000/" + blobtest.DevAccount
	results = account + "/results"
)

// startStore serves srv on an in-memory listener and returns a Store over the real SDK. It belongs inside a bubble.
func startStore(t *testing.T, srv *blobtest.Server, opts *claimcheck.StoreOptions) *claimcheck.Store {
	t.Helper()
	transport := serve(t, srv)
	o := claimcheck.StoreOptions{}
	if opts != nil {
		o = *opts
	}
	o.Transport = transport
	store, err := claimcheck.NewStore(results, claimcheck.OpenConnectionString(srv.ConnectionString("http://127.0.0.1:10000")), &o)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func serve(t *testing.T, handler http.Handler) *http.Transport {
	t.Helper()
	listener := new(pipe.Listener)
	server := &http.Server{Handler: handler}
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return listener.Dial(ctx) }}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
		wg.Wait()
	})
	return transport
}

func document(name string) claimcheck.Reference {
	return claimcheck.Reference{Account: account, Container: "inbox", Blob: name}
}

func goodResult(t *testing.T) (string, claimcheck.Result) {
	t.Helper()
	claim := sound()
	work, err := claim.WorkID()
	if err != nil {
		t.Fatal(err)
	}
	name, err := claim.ResultName()
	if err != nil {
		t.Fatal(err)
	}
	return name, claimcheck.Result{
		Version: "1", Tenant: claim.Tenant, Model: claim.Model, CorrelationID: claim.CorrelationID, WorkID: work,
		Outcome: claimcheck.OutcomeSucceeded, Text: "Thirty days’ notice.", Input: claimcheck.InputUsed{URL: claim.Blob, ETag: claim.ETag, Bytes: 12},
		Usage: claimcheck.TokenUsage{Input: 10, Output: 5}, Cost: claimcheck.CostOfUsage{Amount: 0.000012, Currency: "USD", Rule: "2026-11"},
		TimingsMS: map[string]int64{"fetch": 3, "model": 800}, DeliveryCount: 1, CreatedAt: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC),
	}
}

func TestStoreCreateOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		srv.Put(blobtest.DevAccount, "results", "seed", []byte("x"), nil)
		store := startStore(t, &srv, nil)
		name, result := goodResult(t)

		if _, found, err := store.Lookup(t.Context(), name); found || err != nil {
			t.Fatalf("Lookup before = %v, %v", found, err)
		}
		if _, err := store.Read(t.Context(), name); !errors.Is(err, claimcheck.ErrNoResult) {
			t.Fatalf("Read before = %v, want ErrNoResult", err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		wins, winner := 0, claimcheck.Result{}
		for i := range 20 {
			wg.Go(func() {
				mine := result
				mine.DeliveryCount = i + 1
				created, err := store.Create(t.Context(), name, mine)
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if created {
					wins++
					winner = mine
				}
			})
		}
		wg.Wait()
		if got := srv.Creates(blobtest.DevAccount, "results", name); wins != 1 || got != 1 {
			t.Errorf("%d of 20 created, %d writes, want 1 and 1", wins, got)
		}
		got, found, err := store.Lookup(t.Context(), name)
		if err != nil || !found {
			t.Fatalf("Lookup after = %v, %v", found, err)
		}
		if diff := cmp.Diff(&winner, got); diff != "" {
			t.Errorf("the stored result differs (-want +got):\n%s", diff)
		}
		stored, _ := srv.Blob(blobtest.DevAccount, "results", name)
		if stored.ContentType != "application/json" {
			t.Errorf("content type = %q", stored.ContentType)
		}
		if _, err := store.Create(t.Context(), "acme/other/x.json", result); err == nil {
			t.Error("Create under another name succeeded")
		}
	})
}

func TestStoreCreateAfterLostReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name, result := goodResult(t)
		srv := blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
			if r.Blob == name && r.Attempt == 1 && r.Operation == blobtest.OperationPutBlob {
				return &blobtest.Fault{AfterEffect: true, Cut: true}
			}
			return nil
		}}
		srv.Put(blobtest.DevAccount, "results", "seed", []byte("x"), nil)
		store := startStore(t, &srv, nil)
		if created, err := store.Create(t.Context(), name, result); created || err != nil {
			t.Errorf("Create = %v, %v, want false, nil: the result is there", created, err)
		}
		if got := srv.Creates(blobtest.DevAccount, "results", name); got != 1 {
			t.Errorf("%d writes, want 1", got)
		}
	})
}

// TestStoreFaults plays the replies of the service that say "not this document's fault".
func TestStoreFaults(t *testing.T) {
	for _, tc := range []struct {
		status        int
		code          string
		misconfigured bool
		requests      int // per call, with the SDK's retries
	}{
		{401, "InvalidAuthenticationInfo", true, 1},
		{403, "AuthorizationPermissionMismatch", true, 1},
		{403, "AuthenticationFailed", true, 1},
		{404, "ContainerNotFound", true, 1},
		{404, "ResourceNotFound", true, 1},
		{307, "TemporaryRedirect", true, 1},
		{409, "PublicAccessNotPermitted", true, 1},
		{409, "ContainerBeingDeleted", false, 1},
		{400, "InvalidHeaderValue", true, 1},
		{500, "OperationTimedOut", false, 3},
		{503, "ServerBusy", false, 3},
	} {
		t.Run(fmt.Sprint(tc.status, tc.code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := blobtest.Server{Fault: func(blobtest.Request) *blobtest.Fault {
					return &blobtest.Fault{Status: tc.status, Code: tc.code, Message: "CANARY"}
				}}
				store := startStore(t, &srv, nil)
				name, result := goodResult(t)
				_, fetchErr := store.Fetch(t.Context(), document("acme/a.txt"), "")
				_, _, lookupErr := store.Lookup(t.Context(), name)
				_, createErr := store.Create(t.Context(), name, result)
				_, uploadErr := store.Upload(t.Context(), document("acme/a.txt"), []byte("x"), "")
				for _, call := range []struct {
					what, dependency string
					err              error
				}{
					{"Fetch", "blob:devstoreaccount1", fetchErr}, {"Lookup", "results:devstoreaccount1", lookupErr},
					{"Create", "results:devstoreaccount1", createErr}, {"Upload", "blob:devstoreaccount1", uploadErr},
				} {
					var got *claimcheck.DependencyError
					if !errors.As(call.err, &got) {
						t.Fatalf("%s = %v, want a *DependencyError", call.what, call.err)
					}
					if got.Dependency != call.dependency || got.Misconfigured != tc.misconfigured || got.Status != tc.status || got.Code != tc.code {
						t.Errorf("%s = %+v, want %s, misconfigured %v, %d %s", call.what, got, call.dependency, tc.misconfigured, tc.status, tc.code)
					}
					if strings.Contains(got.Error(), "CANARY") || strings.Contains(fmt.Sprintf("%+v", got), "CANARY") {
						t.Errorf("%s shows the reply's text: %v", call.what, got)
					}
				}
				if got := srv.Stats().Total(); got != 4*tc.requests {
					t.Errorf("%d requests, want %d", got, 4*tc.requests)
				}
			})
		})
	}
}

func TestStoreNetworkFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := blobtest.Server{Fault: func(blobtest.Request) *blobtest.Fault { return &blobtest.Fault{Cut: true} }}
		store := startStore(t, &srv, nil)
		_, err := store.Fetch(t.Context(), document("acme/a.txt"), "")
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || got.Misconfigured || got.Status != 0 {
			t.Errorf("Fetch over a broken connection = %+v, want a passing *DependencyError", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		srv := blobtest.Server{Fault: func(blobtest.Request) *blobtest.Fault { return &blobtest.Fault{Hang: true} }}
		store := startStore(t, &srv, nil)
		start := time.Now()
		_, err := store.Fetch(t.Context(), document("acme/a.txt"), "")
		var got *claimcheck.DependencyError
		if took := time.Since(start); !errors.As(err, &got) || took > 100*time.Second {
			t.Errorf("Fetch from a silent service = %v after %v, want a *DependencyError within 100 s", err, took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		draining := errors.New("draining")
		time.AfterFunc(5*time.Second, func() { cancel(draining) })
		if _, err := store.Fetch(ctx, document("acme/a.txt"), ""); !errors.Is(err, draining) || errors.As(err, &got) {
			t.Errorf("Fetch cancelled = %v, want the cause and no *DependencyError", err)
		}
	})
}

func TestStoreWritesOverLeaseAndPolicy(t *testing.T) {
	for _, tc := range []struct {
		name    string
		status  int
		code    string
		present bool
		wantErr bool
	}{
		{"leased result", 412, "LeaseIdMissing", true, false},
		{"leased nothing", 412, "LeaseIdMissing", false, true},
		{"immutable result", 409, "BlobImmutableDueToPolicy", true, false},
		{"412 for an existing result", 412, "ConditionNotMet", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
					if r.Operation == blobtest.OperationPutBlob {
						return &blobtest.Fault{Status: tc.status, Code: tc.code}
					}
					return nil
				}}
				name, result := goodResult(t)
				srv.Put(blobtest.DevAccount, "results", "seed", []byte("x"), nil)
				if tc.present {
					body, err := result.Encode()
					if err != nil {
						t.Fatal(err)
					}
					srv.Put(blobtest.DevAccount, "results", name, body, nil)
				}
				store := startStore(t, &srv, nil)
				created, err := store.Create(t.Context(), name, result)
				var dependency *claimcheck.DependencyError
				if created || (err != nil) != tc.wantErr || tc.wantErr && (!errors.As(err, &dependency) || dependency.Misconfigured) {
					t.Errorf("Create = %v, %v, want an error: %v", created, err, tc.wantErr)
				}
			})
		})
	}
}

func TestStoreLookupOfForeignBlob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		name, _ := goodResult(t)
		srv.Put(blobtest.DevAccount, "results", name, []byte("not JSON"), nil)
		store := startStore(t, &srv, nil)
		if got, found, err := store.Lookup(t.Context(), name); err != nil || !found || got == nil || got.Outcome != "" {
			t.Errorf("Lookup = %+v, %v, %v, want found without an outcome", got, found, err)
		}
		if _, err := store.Read(t.Context(), name); err == nil || errors.Is(err, claimcheck.ErrNoResult) {
			t.Errorf("Read = %v, want an error about the content", err)
		}
	})
}

func TestStoreNeverFollowsRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var paths []string
		transport := serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			paths = append(paths, r.Host+r.URL.Path)
			mu.Unlock()
			http.Redirect(w, r, "http://evil.example/steal", http.StatusTemporaryRedirect)
		}))
		open := claimcheck.OpenConnectionString(new(blobtest.Server).ConnectionString("http://127.0.0.1:10000"))
		store, err := claimcheck.NewStore(results, open, &claimcheck.StoreOptions{Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Fetch(t.Context(), document("acme/a.txt"), "")
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || !got.Misconfigured || got.Status != 307 {
			t.Errorf("Fetch = %v, want a misconfigured *DependencyError with status 307", err)
		}
		if len(paths) != 1 {
			t.Errorf("requests went to %v, want one", paths)
		}
	})
}

func TestStoreOpensOnlyItsAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		store := startStore(t, &srv, nil)
		ref := document("acme/a.txt")
		ref.Account = "https://other.blob.core.windows.net"
		_, err := store.Fetch(t.Context(), ref, "")
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || !got.Misconfigured || got.Dependency != "blob:other" {
			t.Errorf("Fetch from another account = %v, want a misconfigured *DependencyError", err)
		}
		if n := srv.Stats().Total(); n != 0 {
			t.Errorf("%d requests, want none", n)
		}
	})
	if _, err := claimcheck.NewStore("https://acct/results?sig=x", nil, nil); err == nil {
		t.Error("NewStore accepted a container URL with a query")
	}
}

// staticToken is a credential for the identity path, or a failure to get one.
type staticToken struct{ err error }

func (s staticToken) GetToken(context.Context, azpolicy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: "CANARYTOKEN", ExpiresOn: time.Now().Add(time.Hour)}, s.err
}

func TestStoreWithIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := blobtest.Server{Accounts: map[string]string{"acct": blobtest.DevKey}}
		transport := serve(t, &srv)
		// The listener speaks plain HTTP, so the scheme is changed under the SDK, which sends tokens over https only.
		plain := roundTripper(func(r *http.Request) (*http.Response, error) {
			r = r.Clone(r.Context())
			r.URL.Scheme = "http"
			return transport.RoundTrip(r)
		})
		etag := srv.Put("acct", "inbox", "acme/a.txt", []byte("hello"), nil)
		ref := claimcheck.Reference{Account: "https://acct.blob.core.windows.net", Container: "inbox", Blob: "acme/a.txt"}
		open := claimcheck.OpenIdentity(staticToken{})
		store, err := claimcheck.NewStore("https://acct.blob.core.windows.net/results", open, &claimcheck.StoreOptions{Transport: plain})
		if err != nil {
			t.Fatal(err)
		}
		doc, err := store.Fetch(t.Context(), ref, etag)
		if err != nil || doc.Text != "hello" {
			t.Errorf("Fetch = %+v, %v", doc, err)
		}
		open = claimcheck.OpenIdentity(staticToken{errors.New("Bearer CANARYTOKEN refused")})
		store, err = claimcheck.NewStore("https://acct.blob.core.windows.net/results", open, &claimcheck.StoreOptions{Transport: plain})
		if err != nil {
			t.Fatal(err)
		}
		_, err = store.Fetch(t.Context(), ref, etag)
		var got *claimcheck.DependencyError
		if !errors.As(err, &got) || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("Fetch without a token = %v, want a *DependencyError without it", err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestStoreUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var srv blobtest.Server
		srv.Put(blobtest.DevAccount, "inbox", "seed", []byte("x"), nil)
		store := startStore(t, &srv, nil)
		for name, want := range map[string]string{
			"acme/in box/a+b#c?d.txt": "text/plain; charset=utf-8", "acme/U\u0308.md": "text/markdown; charset=utf-8",
			"acme/100%.csv": "text/csv; charset=utf-8", "acme/a.json": "application/json", "acme/a.htm": "text/html; charset=utf-8", "acme/a.pdf": "application/octet-stream",
		} {
			body := []byte("content of " + name)
			etag, err := store.Upload(t.Context(), document(name), body, "")
			if err != nil {
				t.Fatal(err)
			}
			stored, ok := srv.Blob(blobtest.DevAccount, "inbox", name)
			if !ok || stored.ContentType != want || !bytes.Equal(stored.Body, body) || stored.ETag != `"`+etag+`"` {
				t.Errorf("Upload(%q) stored %+v, returned ETag %s", name, stored, etag)
			}
			if strings.HasSuffix(name, ".pdf") {
				continue
			}
			doc, err := store.Fetch(t.Context(), document(name), etag)
			if err != nil || doc.Text != string(body) || doc.ETag != etag {
				t.Errorf("Fetch(%q) = %+v, %v", name, doc, err)
			}
		}
		pinned := document("acme/a.txt")
		pinned.VersionID = "2026-01-10T08:00:00.1234567Z"
		if _, err := store.Upload(t.Context(), pinned, nil, ""); err == nil {
			t.Error("Upload to a version succeeded")
		}
	})
}

// recordQueries notes the query of each request, decoded.
func recordQueries(next http.Handler, queries *[]string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.QueryUnescape(r.URL.RawQuery)
		if err != nil {
			query = err.Error()
		}
		*queries = append(*queries, query)
		next.ServeHTTP(w, r)
	})
}
