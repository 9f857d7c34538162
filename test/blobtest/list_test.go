package blobtest_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/google/go-cmp/cmp"

	"millrace/test/blobtest"
)

// hardNames are names that a URL, a file system or XML would like to change.
var hardNames = []string{
	"plain.txt", "with space", "a+b", "a#b", "a?b=c", "a%2Fb", "100%", "a/b/c", "/leading", "double//slash", "trailing/",
	"Cafe\u0301", "Caf\u00e9", // NFD and NFC are two names
	"日本語/ü", "emoji 🎉", "a&b<c>\"d'", "a;b=c,d", "tab\there", "new\nline", "ctl\x01", "\ufffe", "..", "a/../b", "a\\b", "~!@$^*()[]{}|`",
}

func TestServerNamesRoundTrip(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		s := &blobtest.Server{Dir: dir}
		s.Put(account, "docs", "x", nil, nil)
		s.Remove(account, "docs", "x")
		client, _ := serve(t, s)
		for _, name := range hardNames {
			if _, err := client.UploadBuffer(t.Context(), "docs", name, []byte(name), ifNew()); err != nil {
				t.Fatalf("upload %q: %v", name, err)
			}
		}
		for _, name := range hardNames {
			if got := read(t, client, name, nil); string(got) != name {
				t.Errorf("content of %q = %q", name, got)
			}
		}
		want := slices.Sorted(slices.Values(hardNames))
		if diff := cmp.Diff(want, s.List(account, "docs", "")); diff != "" {
			t.Errorf("List (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(want, listed(t, client, &azblob.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(3))})); diff != "" {
			t.Errorf("List Blobs (-want +got):\n%s", diff)
		}
	}
}

func listed(t testing.TB, client *azblob.Client, o *azblob.ListBlobsFlatOptions) []string {
	t.Helper()
	var names []string
	for pager := client.NewListBlobsFlatPager("docs", o); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o != nil && o.MaxResults != nil && len(page.Segment.BlobItems) > int(*o.MaxResults) {
			t.Fatalf("page = %d names, want at most %d", len(page.Segment.BlobItems), *o.MaxResults)
		}
		for _, item := range page.Segment.BlobItems {
			names = append(names, *item.Name)
		}
	}
	return names
}

func TestServerListPaging(t *testing.T) {
	s := &blobtest.Server{}
	var all []string
	for i := range 1201 {
		name := fmt.Sprintf("p/%04d", i)
		s.Put(account, "docs", name, nil, nil)
		all = append(all, name)
	}
	s.Put(account, "docs", "other", nil, nil)
	client, _ := serve(t, s)
	for _, size := range []int32{100, 1201, 5000} {
		got := listed(t, client, &azblob.ListBlobsFlatOptions{Prefix: to.Ptr("p/"), MaxResults: to.Ptr(size)})
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("pages of %d (-want +got):\n%s", size, diff)
		}
	}
	if got := listed(t, client, &azblob.ListBlobsFlatOptions{Prefix: to.Ptr("p/120")}); len(got) != 1 {
		t.Errorf("prefix p/120 = %v, want 1 name", got)
	}
	if got := listed(t, client, &azblob.ListBlobsFlatOptions{Prefix: to.Ptr("q")}); got != nil {
		t.Errorf("prefix q = %v, want none", got)
	}
	if got := listed(t, client, &azblob.ListBlobsFlatOptions{StartFrom: to.Ptr("p/1199")}); len(got) != 2 {
		t.Errorf("from p/1199 = %v, want 2 names", got)
	}
	pager := client.NewListBlobsFlatPager("docs", &azblob.ListBlobsFlatOptions{Marker: to.Ptr("nonsense")})
	_, err := pager.NextPage(t.Context())
	wantStatus(t, "list with a marker of nobody's", err, 400, bloberror.OutOfRangeInput)
	pager = client.NewListBlobsFlatPager("none", nil)
	_, err = pager.NextPage(t.Context())
	wantStatus(t, "list of no container", err, 404, bloberror.ContainerNotFound)
}

func TestServerListProperties(t *testing.T) {
	s := &blobtest.Server{}
	etag := s.Put(account, "docs", "a", []byte("abc"), &blobtest.PutOptions{ContentType: "text/plain", Metadata: map[string]string{"k": "v <&> w"}})
	client, _ := serve(t, s)
	page, err := client.NewListBlobsFlatPager("docs", &azblob.ListBlobsFlatOptions{Include: azblob.ListBlobsInclude{Metadata: true}}).NextPage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	item := page.Segment.BlobItems[0]
	p := item.Properties
	b, _ := s.Blob(account, "docs", "a")
	if `"`+string(*p.ETag)+`"` != etag || *p.ContentLength != 3 || *p.ContentType != "text/plain" || len(p.ContentMD5) != 16 ||
		string(*p.BlobType) != "BlockBlob" || p.CreationTime.Unix() != b.Created.Unix() || *item.Metadata["k"] != "v <&> w" {
		t.Errorf("item = %+v %v, want the properties of %+v", *p, item.Metadata, b)
	}
}

func TestServerListHierarchy(t *testing.T) {
	s := &blobtest.Server{}
	for _, name := range []string{"a/1", "a/2", "b", "c/d/1", "c/e"} {
		s.Put(account, "docs", name, nil, nil)
	}
	client, _ := serve(t, s)
	var got []string
	for pager := client.ServiceClient().NewContainerClient("docs").NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{MaxResults: to.Ptr(int32(1))}); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Segment.BlobPrefixes {
			got = append(got, *p.Name)
		}
		for _, b := range page.Segment.BlobItems {
			got = append(got, *b.Name)
		}
	}
	if diff := cmp.Diff([]string{"a/", "b", "c/"}, got); diff != "" {
		t.Errorf("by delimiter (-want +got):\n%s", diff)
	}
}

func TestServerListContainers(t *testing.T) {
	s := &blobtest.Server{Accounts: map[string]string{account: blobtest.DevKey, "second": blobtest.DevKey}}
	for _, name := range []string{"one", "two", "three"} {
		s.Put(account, name, "x", nil, nil)
	}
	s.Put("second", "foreign", "x", nil, nil)
	client, _ := serve(t, s)
	var got []string
	for pager := client.NewListContainersPager(&azblob.ListContainersOptions{MaxResults: to.Ptr(int32(2)), Include: azblob.ListContainersInclude{Metadata: true}}); pager.More(); {
		page, err := pager.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range page.ContainerItems {
			got = append(got, *item.Name)
		}
	}
	if diff := cmp.Diff([]string{"one", "three", "two"}, got); diff != "" {
		t.Errorf("List Containers (-want +got):\n%s", diff)
	}
}

// Whatever the name, what is put is what is listed and what is read.
func FuzzServerName(f *testing.F) {
	for _, name := range hardNames {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		s := &blobtest.Server{}
		s.Put(account, "docs", "seed", nil, nil)
		s.Remove(account, "docs", "seed")
		target := "/" + account + "/docs/" + url.PathEscape(name)
		w := do(s, http.MethodPut, target, "body", map[string]string{"x-ms-blob-type": "BlockBlob"})
		valid := utf8.ValidString(name) && name != "" && utf8.RuneCountInString(name) <= 1024
		if name == "" {
			return // names the container
		}
		if !valid {
			if w.Code != 400 {
				t.Fatalf("put %q = %d, want 400", name, w.Code)
			}
			return
		}
		if w.Code != 201 {
			t.Fatalf("put %q = %d %s, want 201", name, w.Code, w.Body)
		}
		if got := s.List(account, "docs", ""); len(got) != 1 || got[0] != name {
			t.Fatalf("List = %q, want %q", got, name)
		}
		if w := do(s, http.MethodGet, target, "", nil); w.Code != 200 || w.Body.String() != "body" {
			t.Fatalf("get %q = %d %q, want body", name, w.Code, w.Body)
		}
	})
}

// No request line makes the router panic, answer without a status of its own, or write where no name is.
func FuzzServerRoute(f *testing.F) {
	for _, seed := range [][4]string{
		{"GET", "h", "/devstoreaccount1/docs/a", "comp=metadata"},
		{"PUT", "acct.blob.core.windows.net", "/docs/a%2Fb", "comp=block&blockid=AAAA"},
		{"HEAD", "h", "//", "restype=container"},
		{"DELETE", "h", "/devstoreaccount1/docs", "restype=container"},
		{"GET", "h", "/devstoreaccount1", "comp=list&maxresults=-1&marker=2!x"},
		{"GET", "h", "/devstoreaccount1/docs", "restype=container&comp=list&delimiter=/&marker=2!YQ"},
		{"PUT", "h", "/devstoreaccount1/docs/a", "comp=blocklist"},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3])
	}
	f.Fuzz(func(t *testing.T, method, host, path, query string) {
		r, err := http.NewRequest(method, "http://h/", strings.NewReader("<BlockList/>"))
		if err != nil {
			return
		}
		r.Host, r.RequestURI, r.URL.RawQuery = host, "/"+path+"?"+query, query
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("x-ms-blob-type", "BlockBlob")
		s := &blobtest.Server{}
		s.Put(account, "docs", "a", []byte("0123456789"), nil)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		if w.Code < 200 || w.Code > 501 || w.Code == 500 {
			t.Fatalf("%s %s %s?%s = %d %s", method, host, path, query, w.Code, w.Body)
		}
		for _, name := range s.List(account, "docs", "") {
			if !utf8.ValidString(name) || name == "" {
				t.Fatalf("%s %s?%s wrote %q", method, path, query, name)
			}
		}
	})
}
