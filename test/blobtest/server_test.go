package blobtest_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/go-cmp/cmp"

	"millrace/test/blobtest"
)

const account = blobtest.DevAccount

// serve puts s behind httptest and returns a client by connection string.
func serve(t testing.TB, s *blobtest.Server) (*azblob.Client, *httptest.Server) {
	t.Helper()
	hs := httptest.NewServer(s)
	t.Cleanup(hs.Close)
	client, err := azblob.NewClientFromConnectionString(s.ConnectionString(hs.URL), noRetry(hs.Client().Transport))
	if err != nil {
		t.Fatal(err)
	}
	return client, hs
}

func noRetry(rt http.RoundTripper) *azblob.ClientOptions {
	return &azblob.ClientOptions{ClientOptions: policy.ClientOptions{
		Transport: &http.Client{Transport: rt},
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}}
}

// status is the HTTP status and code of an SDK's error; 0 if there is none.
func status(err error) (int, string) {
	var re *azcore.ResponseError
	if errors.As(err, &re) {
		return re.StatusCode, re.ErrorCode
	}
	return 0, ""
}

func wantStatus(t testing.TB, what string, err error, want int, code bloberror.Code) {
	t.Helper()
	if got, gotCode := status(err); got != want || gotCode != string(code) {
		t.Fatalf("%s = %d %s (%v), want %d %s", what, got, gotCode, err, want, code)
	}
}

func read(t testing.TB, client *azblob.Client, name string, o *azblob.DownloadStreamOptions) []byte {
	t.Helper()
	resp, err := client.DownloadStream(t.Context(), "docs", name, o)
	if err != nil {
		t.Fatalf("download %q: %v", name, err)
	}
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read %q: %v", name, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return data
}

func TestServerRoundTrip(t *testing.T) {
	s := &blobtest.Server{}
	client, _ := serve(t, s)
	ctx := t.Context()
	if _, err := client.CreateContainer(ctx, "docs", nil); err != nil {
		t.Fatal(err)
	}
	body := []byte("a document")
	sum := md5.Sum(body)
	up, err := client.UploadBuffer(ctx, "docs", "acme/a.txt", body, &azblob.UploadBufferOptions{
		HTTPHeaders: &blob.HTTPHeaders{
			BlobContentType:     to.Ptr("text/plain; charset=utf-8"),
			BlobContentEncoding: to.Ptr("identity"),
			BlobContentLanguage: to.Ptr("en"),
		},
		Metadata: map[string]*string{"source": to.Ptr("crm"), "Year_2": to.Ptr("x y")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(*up.ETag), `"0x8D`) {
		t.Errorf("ETag = %s, want a quoted 0x8D…", *up.ETag)
	}
	bc := client.ServiceClient().NewContainerClient("docs").NewBlobClient("acme/a.txt")
	props, err := bc.GetProperties(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	type view struct {
		Length             int64
		Type, Encoding, BT string
		MD5                []byte
		ETag               azcore.ETag
		Metadata           map[string]*string
	}
	got := view{*props.ContentLength, *props.ContentType, *props.ContentEncoding, string(*props.BlobType), props.ContentMD5, *props.ETag, props.Metadata}
	want := view{int64(len(body)), "text/plain; charset=utf-8", "identity", "BlockBlob", sum[:], *up.ETag,
		map[string]*string{"Source": to.Ptr("crm"), "Year_2": to.Ptr("x y")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("GetProperties (-want +got):\n%s", diff)
	}
	if props.CreationTime == nil || props.LastModified == nil || props.RequestID == nil || props.Version == nil || props.Date == nil {
		t.Errorf("GetProperties lacks a time, request id or version: %+v", props)
	}
	if got := read(t, client, "acme/a.txt", nil); !bytes.Equal(got, body) {
		t.Errorf("content = %q, want %q", got, body)
	}

	meta, err := bc.SetMetadata(ctx, map[string]*string{"b": to.Ptr("2")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if *meta.ETag == *up.ETag {
		t.Error("SetMetadata kept the ETag")
	}
	if _, err := bc.SetHTTPHeaders(ctx, blob.HTTPHeaders{BlobContentType: to.Ptr("text/html")}, nil); err != nil {
		t.Fatal(err)
	}
	b, ok := s.Blob(account, "docs", "acme/a.txt")
	if !ok || b.ContentType != "text/html" || b.Metadata["b"] != "2" || !bytes.Equal(b.Body, body) {
		t.Errorf("Blob = %+v, %t, want text/html, b=2 and the same body", b, ok)
	}
	if n := s.Creates(account, "docs", "acme/a.txt"); n != 1 {
		t.Errorf("Creates = %d, want 1", n)
	}
	if _, err := bc.Delete(ctx, nil); err != nil {
		t.Fatal(err)
	}
	_, err = bc.GetProperties(ctx, nil)
	wantStatus(t, "GetProperties of a deleted blob", err, 404, bloberror.BlobNotFound)
	_, err = client.DownloadStream(ctx, "docs", "acme/a.txt", nil)
	wantStatus(t, "DownloadStream of a deleted blob", err, 404, bloberror.BlobNotFound)
	_, err = client.DownloadStream(ctx, "none", "a", nil)
	wantStatus(t, "DownloadStream from no container", err, 404, bloberror.ContainerNotFound)
}

func TestServerContainers(t *testing.T) {
	client, _ := serve(t, &blobtest.Server{})
	ctx := t.Context()
	cc := client.ServiceClient().NewContainerClient("docs")
	_, err := cc.GetProperties(ctx, nil)
	wantStatus(t, "GetProperties", err, 404, bloberror.ContainerNotFound)
	if _, err := cc.Create(ctx, &container.CreateOptions{Metadata: map[string]*string{"team": to.Ptr("a")}}); err != nil {
		t.Fatal(err)
	}
	_, err = cc.Create(ctx, nil)
	wantStatus(t, "Create", err, 409, bloberror.ContainerAlreadyExists)
	props, err := cc.GetProperties(ctx, nil)
	if err != nil || *props.Metadata["Team"] != "a" {
		t.Fatalf("GetProperties = %+v, %v, want team=a", props, err)
	}
	if _, err := cc.SetMetadata(ctx, &container.SetMetadataOptions{Metadata: map[string]*string{"team": to.Ptr("b")}}); err != nil {
		t.Fatal(err)
	}
	if _, err := cc.Delete(ctx, nil); err != nil {
		t.Fatal(err)
	}
	_, err = cc.Delete(ctx, nil)
	wantStatus(t, "Delete", err, 404, bloberror.ContainerNotFound)
	_, err = client.CreateContainer(ctx, "No_Good", nil)
	wantStatus(t, "CreateContainer", err, 400, bloberror.InvalidResourceName)
	info, err := client.ServiceClient().GetAccountInfo(ctx, nil)
	if err != nil || *info.AccountKind != "StorageV2" {
		t.Fatalf("GetAccountInfo = %+v, %v, want StorageV2", info, err)
	}
}

func TestServerCreateRace(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := &blobtest.Server{Dir: dir}
		client, hs := serve(t, s)
		hs.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = 100
		s.Put(account, "out", "other", nil, nil)
		var mu sync.Mutex
		answers := map[string]int{}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				_, err := client.UploadBuffer(t.Context(), "out", "r.json", fmt.Appendf(nil, "writer %d", i), ifNew())
				st, code := status(err)
				mu.Lock()
				defer mu.Unlock()
				answers[fmt.Sprint(st, code)]++
			})
		}
		wg.Wait()
		if diff := cmp.Diff(map[string]int{"0": 1, "409BlobAlreadyExists": 99}, answers); diff != "" {
			t.Errorf("dir %t: answers of 100 conditional creates (-want +got):\n%s", dir != "", diff)
		}
		if n := s.Creates(account, "out", "r.json"); n != 1 {
			t.Errorf("dir %t: Creates = %d, want 1", dir != "", n)
		}
		st := s.Stats()
		if st.Count(blobtest.OperationPutBlob, 201) != 1 || st.Count(blobtest.OperationPutBlob, 409) != 99 || st.Total() != 100 {
			t.Errorf("dir %t: Stats = %+v, want 1×201, 99×409", dir != "", st.Requests)
		}
	}
}

func ifNew() *azblob.UploadBufferOptions {
	return &azblob.UploadBufferOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfNoneMatch: to.Ptr(azcore.ETagAny)},
	}}
}

func TestServerRanges(t *testing.T) {
	s := &blobtest.Server{}
	s.Put(account, "docs", "a", []byte("0123456789"), nil)
	s.Put(account, "docs", "empty", nil, nil)
	client, _ := serve(t, s)
	for _, tc := range []struct {
		name          string
		offset, count int64
		want          string
		status        int
	}{
		{"a", 0, 0, "0123456789", 0},
		{"a", 3, 0, "3456789", 0},
		{"a", 3, 4, "3456", 0},
		{"a", 8, 100, "89", 0},
		{"a", 9, 1, "9", 0},
		{"a", 10, 1, "", 416},
		{"empty", 0, 0, "", 0},
		{"empty", 0, 5, "", 416},
	} {
		resp, err := client.DownloadStream(t.Context(), "docs", tc.name, &azblob.DownloadStreamOptions{Range: azblob.HTTPRange{Offset: tc.offset, Count: tc.count}})
		if tc.status != 0 {
			wantStatus(t, fmt.Sprintf("DownloadStream(%s, %d, %d)", tc.name, tc.offset, tc.count), err, tc.status, bloberror.InvalidRange)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		if err != nil || string(got) != tc.want {
			t.Errorf("DownloadStream(%s, %d, %d) = %q, %v, want %q", tc.name, tc.offset, tc.count, got, err, tc.want)
		}
	}
	resp, err := client.DownloadStream(t.Context(), "docs", "a", &azblob.DownloadStreamOptions{
		Range: azblob.HTTPRange{Offset: 2, Count: 3}, RangeGetContentMD5: to.Ptr(true)})
	if err != nil {
		t.Fatal(err)
	}
	if want := md5.Sum([]byte("234")); !bytes.Equal(resp.ContentMD5, want[:]) || *resp.ContentRange != "bytes 2-4/10" {
		t.Errorf("range = MD5 %x, %s, want %x, bytes 2-4/10", resp.ContentMD5, *resp.ContentRange, want)
	}
	_ = resp.Body.Close()
}

// A download in parallel pieces checks HEAD, ranges and If-Match together.
func TestServerDownloadBuffer(t *testing.T) {
	s := &blobtest.Server{Dir: t.TempDir()}
	body := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	s.Put(account, "docs", "big", body, nil)
	client, _ := serve(t, s)
	got := make([]byte, len(body))
	if _, err := client.DownloadBuffer(t.Context(), "docs", "big", got, &azblob.DownloadBufferOptions{BlockSize: 100_000, Concurrency: 4}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, body) {
		t.Error("DownloadBuffer returned other bytes")
	}
}

// A body larger than what is set aside for it in advance.
func TestServerLargeBody(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := &blobtest.Server{Dir: dir}
		s.Put(account, "docs", "x", nil, nil)
		_, hs := serve(t, s)
		body := bytes.Repeat([]byte("0123456789abcdef"), 9<<16)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPut, hs.URL+"/"+account+"/docs/big", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("x-ms-blob-type", "BlockBlob")
		resp, err := hs.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if b, ok := s.Blob(account, "docs", "big"); resp.StatusCode != 201 || !ok || !bytes.Equal(b.Body, body) {
			t.Errorf("dir %t: put of %d bytes = %s, stored %d", dir != "", len(body), resp.Status, len(b.Body))
		}
	}
}

func TestServerSums(t *testing.T) {
	client, _ := serve(t, &blobtest.Server{})
	ctx := t.Context()
	if _, err := client.CreateContainer(ctx, "docs", nil); err != nil {
		t.Fatal(err)
	}
	bc := client.ServiceClient().NewContainerClient("docs").NewBlockBlobClient("a")
	upload := func(v blob.TransferValidationType) error {
		_, err := bc.Upload(ctx, nopCloser{strings.NewReader("body")}, &blockblob.UploadOptions{TransactionalValidation: v})
		return err
	}
	right, wrong := md5.Sum([]byte("body")), md5.Sum([]byte("other"))
	if err := upload(blob.TransferValidationTypeMD5(right[:])); err != nil {
		t.Errorf("Upload with the right MD5 = %v", err)
	}
	wantStatus(t, "Upload with a wrong MD5", upload(blob.TransferValidationTypeMD5(wrong[:])), 400, bloberror.MD5Mismatch)
	if err := upload(blob.TransferValidationTypeComputeCRC64()); err != nil {
		t.Errorf("Upload with a computed CRC64 = %v", err)
	}
	wantStatus(t, "Upload with a wrong CRC64", upload(blob.TransferValidationTypeCRC64(7)), 400, bloberror.CRC64Mismatch)
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

func TestServerMaxBody(t *testing.T) {
	s := &blobtest.Server{MaxBody: 10}
	s.Put(account, "docs", "x", nil, nil)
	client, _ := serve(t, s)
	_, err := client.UploadBuffer(t.Context(), "docs", "a", make([]byte, 11), nil)
	wantStatus(t, "UploadBuffer of 11 bytes", err, 413, bloberror.RequestBodyTooLarge)
	if _, err := client.UploadBuffer(t.Context(), "docs", "a", make([]byte, 10), nil); err != nil {
		t.Errorf("UploadBuffer of 10 bytes = %v", err)
	}
}

// A body that is cut in the middle leaves nothing, in memory and on a folder.
func TestServerCutBodyLeavesNothing(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := &blobtest.Server{Dir: dir, Token: "secret"}
		s.Put(account, "docs", "x", nil, nil)
		_, hs := serve(t, s)
		conn, err := net.Dial("tcp", hs.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "PUT /%s/docs/half HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer secret\r\nx-ms-blob-type: BlockBlob\r\nContent-Length: 1000\r\n\r\nhalf", account)
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, conn); err != nil { // until the server gives up
			t.Fatal(err)
		}
		_ = conn.Close()
		if diff := cmp.Diff([]string{"x"}, s.List(account, "docs", "")); diff != "" {
			t.Errorf("dir %t: names (-want +got):\n%s", dir != "", diff)
		}
		if n := s.Creates(account, "docs", "half"); n != 0 {
			t.Errorf("dir %t: Creates = %d, want 0", dir != "", n)
		}
		if debris := debris(t, dir); len(debris) > 0 {
			t.Errorf("folder still holds %v", debris)
		}
	}
}

func TestServerArchivedAndPending(t *testing.T) {
	s := &blobtest.Server{}
	etag := s.Put(account, "docs", "cold", []byte("x"), &blobtest.PutOptions{Tier: "Archive"})
	s.Put(account, "docs", "coming", nil, &blobtest.PutOptions{CopyStatus: "pending"})
	client, _ := serve(t, s)
	_, err := client.DownloadStream(t.Context(), "docs", "cold", nil)
	wantStatus(t, "DownloadStream of an archived blob", err, 409, bloberror.BlobArchived)
	cc := client.ServiceClient().NewContainerClient("docs")
	if _, err := cc.NewBlobClient("cold").SetTier(t.Context(), blob.AccessTierHot, nil); err != nil {
		t.Fatal(err)
	}
	resp, err := client.DownloadStream(t.Context(), "docs", "cold", nil)
	if err != nil || string(*resp.ETag) != etag {
		t.Fatalf("DownloadStream after SetTier = %v, ETag %s, want the ETag as it was, %s", err, *resp.ETag, etag)
	}
	_ = resp.Body.Close()
	props, err := cc.NewBlobClient("coming").GetProperties(t.Context(), nil)
	if err != nil || *props.CopyStatus != blob.CopyStatusTypePending {
		t.Errorf("GetProperties = %+v, %v, want a pending copy", props.CopyStatus, err)
	}
}

func TestServerUnknownOperations(t *testing.T) {
	s := &blobtest.Server{}
	s.Put(account, "docs", "a", nil, nil)
	client, _ := serve(t, s)
	bc := client.ServiceClient().NewContainerClient("docs").NewBlobClient("a")
	_, err := bc.CreateSnapshot(t.Context(), nil)
	wantStatus(t, "CreateSnapshot", err, 501, "NotImplemented")
	old, err := bc.WithVersionID("2020-01-01T00:00:00.0000000Z")
	if err != nil {
		t.Fatal(err)
	}
	_, err = old.GetProperties(t.Context(), nil)
	wantStatus(t, "GetProperties of a version", err, 404, bloberror.BlobNotFound)
}

func TestServerETagsNeverRepeat(t *testing.T) {
	s := &blobtest.Server{}
	seen := map[string]bool{}
	for range 1000 {
		etag := s.Put(account, "docs", "a", nil, nil)
		if seen[etag] {
			t.Fatalf("ETag %s came twice", etag)
		}
		seen[etag] = true
	}
}

func TestServerAwait(t *testing.T) {
	s := &blobtest.Server{}
	client, _ := serve(t, s)
	s.Put(account, "out", "seed", nil, nil)
	done := make(chan error, 1)
	go func() {
		done <- s.Await(t.Context(), func(s *blobtest.Server) bool { return len(s.List(account, "out", "r/")) == 3 })
	}()
	for i := range 3 {
		if _, err := client.UploadBuffer(t.Context(), "out", fmt.Sprintf("r/%d", i), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		t.Errorf("Await = %v, want nil", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := s.Await(ctx, func(*blobtest.Server) bool { return false }); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Await = %v, want deadline exceeded", err)
	}
}

func TestServerRemove(t *testing.T) {
	s := &blobtest.Server{Dir: t.TempDir()}
	s.Put(account, "docs", "a", []byte("x"), nil)
	if !s.Remove(account, "docs", "a") || s.Remove(account, "docs", "a") {
		t.Error("Remove = want true once, then false")
	}
	if got := s.List(account, "docs", ""); got != nil {
		t.Errorf("List = %v, want none", got)
	}
}
