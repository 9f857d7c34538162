package blobtest_test

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"

	"millrace/test/blobtest"
)

func TestServerListenAndClose(t *testing.T) {
	hanging := make(chan struct{})
	s := &blobtest.Server{Fault: func(r blobtest.Request) *blobtest.Fault {
		if r.Blob != "hang" {
			return nil
		}
		close(hanging)
		return &blobtest.Fault{Hang: true}
	}}
	addr, err := s.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Listen("127.0.0.1:0"); err == nil {
		t.Error("second Listen = nil, want an error")
	}
	tr := dialTo(addr)
	defer tr.CloseIdleConnections()
	client, err := azblob.NewClientFromConnectionString(s.ConnectionString("http://"+addr.String()), noRetry(tr))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CreateContainer(t.Context(), "docs", nil); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := client.DownloadStream(t.Context(), "docs", "hang", nil)
		done <- err
	}()
	<-hanging
	if err := s.Close(); err != nil {
		t.Errorf("Close = %v, want nil: a request held by a fault is let go", err)
	}
	if err := <-done; err == nil {
		t.Error("DownloadStream = nil, want a broken connection")
	}
	if err := s.Close(); err != nil {
		t.Errorf("second Close = %v, want nil", err)
	}
	if addr, err = s.Listen("127.0.0.1:0"); err != nil {
		t.Errorf("Listen after Close = %v on %v, want nil", err, addr)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestServerCloseNamesWhoHangs(t *testing.T) {
	t.Parallel() // it takes Close's 5 s
	s := &blobtest.Server{}
	s.Put(account, "docs", "x", nil, nil)
	addr, err := s.Listen("localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", addr.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// The server says 100 Continue when it begins to wait for a body that never comes.
	_, _ = io.WriteString(conn, "PUT /"+account+"/docs/slow HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer x\r\nx-ms-blob-type: BlockBlob\r\nContent-Length: 10\r\nExpect: 100-continue\r\n\r\n")
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))); err != nil {
		t.Fatal(err)
	}
	err = s.Close()
	if err == nil || !strings.Contains(err.Error(), "PutBlob docs/slow") {
		t.Errorf("Close = %v, want an error that names PutBlob docs/slow", err)
	}
}

func TestServerListenRefusesOtherAddresses(t *testing.T) {
	s := &blobtest.Server{}
	for _, addr := range []string{"0.0.0.0:0", ":0", "192.0.2.1:80", "example.com:80", "nonsense"} {
		if got, err := s.Listen(addr); err == nil {
			t.Errorf("Listen(%q) = %v, nil, want an error", addr, got)
			_ = s.Close()
		}
	}
}

func TestServerConnectionString(t *testing.T) {
	for _, tc := range []struct {
		accounts map[string]string
		want     string
	}{
		{nil, "DefaultEndpointsProtocol=http;AccountName=devstoreaccount1;AccountKey=" + blobtest.DevKey + ";BlobEndpoint=http://h:1/devstoreaccount1;"},
		{map[string]string{"b": "Qg==", "a": "QQ=="}, "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=QQ==;BlobEndpoint=http://h:1/a;"},
		{map[string]string{}, ""},
	} {
		s := &blobtest.Server{Accounts: tc.accounts}
		if got := s.ConnectionString("http://h:1"); got != tc.want {
			t.Errorf("ConnectionString = %q, want %q", got, tc.want)
		}
	}
}
