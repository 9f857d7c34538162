package blobtest_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/sas"

	"millrace/test/blobtest"
)

// staticToken is a credential that always has the same token.
type staticToken string

func (tok staticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: string(tok), ExpiresOn: time.Now().Add(time.Hour)}, nil
}

func TestServerSharedKey(t *testing.T) {
	otherKey := base64.StdEncoding.EncodeToString([]byte("another key"))
	s := &blobtest.Server{Accounts: map[string]string{account: blobtest.DevKey, "second": otherKey}}
	_, hs := serve(t, s)
	for _, tc := range []struct {
		name, path, account, key string
		status                   int
		code                     bloberror.Code
	}{
		{"own key", account, account, blobtest.DevKey, 201, ""},
		{"second account", "second", "second", otherKey, 201, ""},
		{"wrong key", account, account, otherKey, 403, bloberror.AuthenticationFailed},
		{"other account's signature", account, "second", otherKey, 403, bloberror.AuthenticationFailed},
		{"unknown account", "third", "third", otherKey, 404, bloberror.ResourceNotFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cred, err := azblob.NewSharedKeyCredential(tc.account, tc.key)
			if err != nil {
				t.Fatal(err)
			}
			client, err := azblob.NewClientWithSharedKeyCredential(hs.URL+"/"+tc.path, cred, noRetry(hs.Client().Transport))
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.CreateContainer(t.Context(), "docs", nil)
			if tc.status != 201 {
				wantStatus(t, "CreateContainer", err, tc.status, tc.code)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			// Everything that enters the signature: headers, conditions, metadata whose order depends on the
			// collation, and a query with characters that are escaped.
			_, err = client.UploadBuffer(t.Context(), "docs", "a b+c#d?e%2Ff", []byte("x"), &azblob.UploadBufferOptions{
				HTTPHeaders:      &blob.HTTPHeaders{BlobContentType: to.Ptr("text/plain")},
				Metadata:         map[string]*string{"a_b": to.Ptr("1"), "a1": to.Ptr("2"), "ab": to.Ptr("3"), "a": to.Ptr("4"), "b_": to.Ptr("5")},
				AccessConditions: ifNew().AccessConditions,
			})
			if err != nil {
				t.Errorf("UploadBuffer = %v", err)
			}
			pager := client.NewListBlobsFlatPager("docs", &azblob.ListBlobsFlatOptions{Prefix: to.Ptr("a b+c&d=ä"), Include: azblob.ListBlobsInclude{Metadata: true, Copy: true}})
			if _, err := pager.NextPage(t.Context()); err != nil {
				t.Errorf("list = %v", err)
			}
		})
	}
}

func TestServerSharedKeyDate(t *testing.T) {
	s := &blobtest.Server{}
	r := httptest.NewRequest(http.MethodGet, "/"+account+"?comp=list", nil)
	r.Header.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString([]byte("x")))
	for _, tc := range []struct{ date, detail string }{
		{"", "no valid date"},
		{time.Now().Add(-16 * time.Minute).UTC().Format(http.TimeFormat), "15 minutes"},
		{time.Now().UTC().Format(http.TimeFormat), "MAC signature"},
	} {
		r.Header.Set("x-ms-date", tc.date)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 403 || !strings.Contains(w.Body.String(), tc.detail) {
			t.Errorf("date %q = %d %s, want 403 and %q", tc.date, w.Code, w.Body, tc.detail)
		}
	}
}

func TestServerBearer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server *blobtest.Server
		token  string
		tls    bool
		status int
		code   bloberror.Code
	}{
		{"any token", &blobtest.Server{}, "whatever", true, 0, ""},
		{"plain HTTP", &blobtest.Server{}, "whatever", false, 0, ""},
		{"expected token", &blobtest.Server{Token: "right"}, "right", true, 0, ""},
		{"another token", &blobtest.Server{Token: "right"}, "wrong", true, 401, bloberror.InvalidAuthenticationInfo},
		{"TLS wanted", &blobtest.Server{BearerNeedsTLS: true}, "x", true, 0, ""},
		{"TLS missing", &blobtest.Server{BearerNeedsTLS: true}, "x", false, 403, bloberror.AuthenticationFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hs := httptest.NewUnstartedServer(tc.server)
			if tc.tls {
				hs.StartTLS()
			} else {
				hs.Start()
			}
			defer hs.Close()
			opts := noRetry(hs.Client().Transport)
			opts.InsecureAllowCredentialWithHTTP = !tc.tls
			client, err := azblob.NewClient(hs.URL+"/"+account, staticToken(tc.token), opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = client.CreateContainer(t.Context(), "docs", nil)
			if got, code := status(err); got != tc.status || code != string(tc.code) {
				t.Errorf("CreateContainer = %d %s (%v), want %d %s", got, code, err, tc.status, tc.code)
			}
		})
	}
}

func TestServerSAS(t *testing.T) {
	for _, allow := range []bool{false, true} {
		s := &blobtest.Server{AllowSAS: allow}
		s.Put(account, "docs", "a", []byte("x"), nil)
		client, hs := serve(t, s)
		url, err := client.ServiceClient().NewContainerClient("docs").NewBlobClient("a").GetSASURL(sas.BlobPermissions{Read: true}, time.Now().Add(time.Hour), nil)
		if err != nil {
			t.Fatal(err)
		}
		bc, err := blob.NewClientWithNoCredential(url, (*blob.ClientOptions)(noRetry(hs.Client().Transport)))
		if err != nil {
			t.Fatal(err)
		}
		_, err = bc.DownloadStream(t.Context(), nil)
		if allow && err != nil {
			t.Errorf("AllowSAS: DownloadStream = %v", err)
		}
		if !allow {
			wantStatus(t, "DownloadStream with a SAS", err, 403, bloberror.AuthenticationFailed)
			if strings.Contains(err.Error(), "sig=") && !strings.Contains(err.Error(), "sig=REDACTED") {
				t.Error("the answer repeats the signature")
			}
		}
	}
}

func TestServerNoCredential(t *testing.T) {
	s := &blobtest.Server{}
	s.Put(account, "docs", "a", nil, nil)
	for _, tc := range []struct {
		header, code string
	}{
		{"", "NoAuthenticationInformation"},
		{"Basic abc", "InvalidAuthenticationInfo"},
	} {
		r := httptest.NewRequest(http.MethodGet, "/"+account+"/docs/a", nil)
		if tc.header != "" {
			r.Header.Set("Authorization", tc.header)
		}
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code != 401 || w.Header().Get("x-ms-error-code") != tc.code || !strings.Contains(w.Header().Get("WWW-Authenticate"), "resource_id=https://storage.azure.com") {
			t.Errorf("Authorization %q = %d %v, want 401 %s and a challenge", tc.header, w.Code, w.Header(), tc.code)
		}
	}
}

// A client with the service's own kind of URL reaches its account by the Host header.
func TestServerHostStyle(t *testing.T) {
	s := &blobtest.Server{Accounts: map[string]string{"acct": blobtest.DevKey}}
	hs := httptest.NewServer(s)
	defer hs.Close()
	cred, err := azblob.NewSharedKeyCredential("acct", blobtest.DevKey)
	if err != nil {
		t.Fatal(err)
	}
	client, err := azblob.NewClientWithSharedKeyCredential("http://acct.blob.core.windows.net", cred, noRetry(dialTo(hs.Listener.Addr())))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateContainer(t.Context(), "docs", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := client.UploadBuffer(t.Context(), "docs", "a/b", []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if b, ok := s.Blob("acct", "docs", "a/b"); !ok || string(b.Body) != "x" {
		t.Errorf("Blob = %+v, %t, want x", b, ok)
	}
	if got := read(t, client, "a/b", nil); string(got) != "x" {
		t.Errorf("content = %q, want x", got)
	}
}
