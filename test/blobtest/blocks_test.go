package blobtest_test

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/google/go-cmp/cmp"

	"millrace/test/blobtest"
)

func blockID(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestServerUploadStream(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := &blobtest.Server{Dir: dir}
		s.Put(account, "docs", "x", nil, nil)
		client, _ := serve(t, s)
		body := make([]byte, 5<<20+17)
		rng := rand.NewChaCha8([32]byte{1})
		_, _ = rng.Read(body)
		up, err := client.UploadStream(t.Context(), "docs", "big", bytes.NewReader(body), &azblob.UploadStreamOptions{
			BlockSize: 1 << 20, Concurrency: 3, HTTPHeaders: &blob.HTTPHeaders{BlobContentType: to.Ptr("text/plain")},
			AccessConditions: ifNew().AccessConditions,
		})
		if err != nil {
			t.Fatal(err)
		}
		b, ok := s.Blob(account, "docs", "big")
		if !ok || !bytes.Equal(b.Body, body) || b.ContentType != "text/plain" || b.ETag != string(*up.ETag) {
			t.Errorf("dir %t: Blob = %d bytes, %s, %s, want %d, text/plain, %s", dir != "", len(b.Body), b.ContentType, b.ETag, len(body), *up.ETag)
		}
		if n := s.Creates(account, "docs", "big"); n != 1 {
			t.Errorf("Creates = %d, want 1: blocks do not count", n)
		}
		_, err = client.UploadStream(t.Context(), "docs", "big", bytes.NewReader(body), &azblob.UploadStreamOptions{
			BlockSize: 1 << 20, AccessConditions: ifNew().AccessConditions,
		})
		wantStatus(t, "UploadStream if none is there", err, 409, bloberror.BlobAlreadyExists)
	}
}

func TestServerBlockLists(t *testing.T) {
	s := &blobtest.Server{Dir: t.TempDir()}
	s.Put(account, "docs", "x", nil, nil)
	client, _ := serve(t, s)
	ctx := t.Context()
	bb := client.ServiceClient().NewContainerClient("docs").NewBlockBlobClient("a")
	stage := func(id, body string) error {
		_, err := bb.StageBlock(ctx, blockID(id), nopCloser{strings.NewReader(body)}, nil)
		return err
	}
	for _, b := range [][2]string{{"01", "one"}, {"02", "two"}, {"03", "three"}, {"02", "TWO"}} {
		if err := stage(b[0], b[1]); err != nil {
			t.Fatal(err)
		}
	}
	wantStatus(t, "StageBlock with an id of another length", stage("0004", "x"), 400, bloberror.InvalidBlobOrBlock)
	_, err := bb.GetProperties(ctx, nil)
	wantStatus(t, "GetProperties of uncommitted blocks", err, 404, bloberror.BlobNotFound)

	type named struct {
		Name string
		Size int64
	}
	lists := func() (committed, uncommitted []named) {
		t.Helper()
		resp, err := bb.GetBlockList(ctx, blockblob.BlockListTypeAll, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range resp.CommittedBlocks {
			committed = append(committed, named{*b.Name, *b.Size})
		}
		for _, b := range resp.UncommittedBlocks {
			uncommitted = append(uncommitted, named{*b.Name, *b.Size})
		}
		return committed, uncommitted
	}
	committed, uncommitted := lists()
	if diff := cmp.Diff([]named{{blockID("01"), 3}, {blockID("02"), 3}, {blockID("03"), 5}}, uncommitted); diff != "" || committed != nil {
		t.Errorf("uncommitted blocks (-want +got):\n%s\ncommitted: %v", diff, committed)
	}
	_, err = bb.CommitBlockList(ctx, []string{blockID("01"), blockID("99")}, nil)
	wantStatus(t, "CommitBlockList with an unknown block", err, 400, bloberror.InvalidBlockList)
	if _, err := bb.CommitBlockList(ctx, []string{blockID("03"), blockID("02"), blockID("01"), blockID("02")}, nil); err != nil {
		t.Fatal(err)
	}
	if b, _ := s.Blob(account, "docs", "a"); string(b.Body) != "threeTWOoneTWO" {
		t.Errorf("content = %q, want threeTWOoneTWO", b.Body)
	}
	committed, uncommitted = lists()
	if len(committed) != 4 || uncommitted != nil {
		t.Errorf("blocks after commit = %v, %v, want 4 committed", committed, uncommitted)
	}

	// A second list may take committed blocks again, in any order among new ones.
	if err := stage("04", "4"); err != nil {
		t.Fatal(err)
	}
	list := "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Uncommitted>" + blockID("04") + "</Uncommitted><Committed>" + blockID("01") +
		"</Committed><Latest>" + blockID("04") + "</Latest><Latest>" + blockID("03") + "</Latest></BlockList>"
	if w := do(s, "PUT", "/"+account+"/docs/a?comp=blocklist", list, nil); w.Code != 201 {
		t.Fatalf("Put Block List = %d %s, want 201", w.Code, w.Body)
	}
	if b, _ := s.Blob(account, "docs", "a"); string(b.Body) != "4one4three" {
		t.Errorf("content = %q, want 4one4three", b.Body)
	}
	for _, bad := range []string{"", "<BlockList><Latest>", "<Other/>", "<BlockList><Other>AA==</Other></BlockList>", "not xml"} {
		if w := do(s, "PUT", "/"+account+"/docs/a?comp=blocklist", bad, nil); w.Code != 400 || w.Header().Get("x-ms-error-code") != "InvalidXmlDocument" {
			t.Errorf("Put Block List(%q) = %d %s, want 400 InvalidXmlDocument", bad, w.Code, w.Header().Get("x-ms-error-code"))
		}
	}

	// Put Blob forgets what was staged.
	if err := stage("05", "5"); err != nil {
		t.Fatal(err)
	}
	if _, err := bb.Upload(ctx, nopCloser{strings.NewReader("whole")}, nil); err != nil {
		t.Fatal(err)
	}
	_, err = bb.CommitBlockList(ctx, []string{blockID("05")}, nil)
	wantStatus(t, "CommitBlockList after Put Blob", err, 400, bloberror.InvalidBlockList)
	_, err = bb.CommitBlockList(ctx, nil, &blockblob.CommitBlockListOptions{AccessConditions: &blob.AccessConditions{
		ModifiedAccessConditions: &blob.ModifiedAccessConditions{IfMatch: to.Ptr(azcore.ETag(`"0x1"`))}}})
	wantStatus(t, "CommitBlockList with an old ETag", err, 412, bloberror.ConditionNotMet)
}
