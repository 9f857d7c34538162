package blobtest_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"millrace/test/blobtest"
)

func Example() {
	store := &blobtest.Server{}
	store.Put(blobtest.DevAccount, "docs", "acme/a.txt", []byte("a document"), nil)
	hs := httptest.NewServer(store)
	defer hs.Close()

	client, err := azblob.NewClientFromConnectionString(store.ConnectionString(hs.URL), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = client.UploadBuffer(context.Background(), "docs", "acme/b.txt", []byte("another"), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(store.List(blobtest.DevAccount, "docs", "acme/"))
	fmt.Println(store.Creates(blobtest.DevAccount, "docs", "acme/b.txt"))
	// Output:
	// [acme/a.txt acme/b.txt]
	// 1
}
