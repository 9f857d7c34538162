package blobtest

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// Operation is one operation of the Blob service, by its name in the REST reference without the spaces.
type Operation string

// The operations served. OperationUnknown stands for every request that is answered 501 or that names no operation.
const (
	OperationUnknown                Operation = "Unknown"
	OperationListContainers         Operation = "ListContainers"
	OperationGetAccountInformation  Operation = "GetAccountInformation"
	OperationCreateContainer        Operation = "CreateContainer"
	OperationDeleteContainer        Operation = "DeleteContainer"
	OperationGetContainerProperties Operation = "GetContainerProperties"
	OperationSetContainerMetadata   Operation = "SetContainerMetadata"
	OperationListBlobs              Operation = "ListBlobs"
	OperationPutBlob                Operation = "PutBlob"
	OperationPutBlock               Operation = "PutBlock"
	OperationPutBlockList           Operation = "PutBlockList"
	OperationGetBlockList           Operation = "GetBlockList"
	OperationGetBlob                Operation = "GetBlob"
	OperationGetBlobProperties      Operation = "GetBlobProperties"
	OperationGetBlobMetadata        Operation = "GetBlobMetadata"
	OperationSetBlobMetadata        Operation = "SetBlobMetadata"
	OperationSetBlobProperties      Operation = "SetBlobProperties"
	OperationSetBlobTier            Operation = "SetBlobTier"
	OperationDeleteBlob             Operation = "DeleteBlob"
)

// target is what a request is about.
type target struct {
	operation Operation
	account   string
	container string
	blob      string
	path      string // as sent, still percent-encoded: Shared Key signs it so
	query     url.Values
	hostStyle bool
}

// route finds the account, container, blob and operation that a request names.
// The path is taken apart before it is decoded, so that an encoded slash can only be part of a blob's name.
func route(r *http.Request) (target, *failure) {
	t := target{operation: OperationUnknown, path: rawPath(r)}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return t, failed("InvalidUri")
	}
	t.query = query

	rest := strings.TrimPrefix(t.path, "/")
	if account, ok := hostAccount(r.Host); ok {
		t.account, t.hostStyle = account, true
	} else {
		var segment string
		segment, rest, _ = strings.Cut(rest, "/")
		if t.account, err = url.PathUnescape(segment); err != nil || t.account == "" {
			return t, failed("InvalidUri")
		}
	}

	container, blob, _ := strings.Cut(rest, "/")
	if t.container, err = url.PathUnescape(container); err != nil {
		return t, failed("InvalidUri")
	}
	if t.blob, err = url.PathUnescape(blob); err != nil {
		return t, failed("InvalidUri")
	}
	restype := query.Get("restype")
	if t.container != "" && t.blob == "" && restype == "" {
		t.container, t.blob = "$root", t.container // "Working with the root container"
	}
	if t.container != "" && !validContainer(t.container) {
		return t, failed("InvalidResourceName")
	}
	if t.blob != "" && !validBlob(t.blob) {
		return t, failed("InvalidUri")
	}
	t.operation = t.classify(r.Method, restype, query.Get("comp"))
	if t.operation == OperationUnknown {
		return t, failed("NotImplemented")
	}
	return t, nil
}

func (t target) classify(method, restype, comp string) Operation {
	level := "blob"
	switch {
	case t.container == "":
		level = "account"
	case t.blob == "":
		level = "container"
	}
	switch level + " " + method + " " + restype + " " + comp {
	case "account GET  list":
		return OperationListContainers
	case "account GET account properties", "account HEAD account properties",
		"container GET account properties", "container HEAD account properties":
		return OperationGetAccountInformation
	case "container PUT container ":
		return OperationCreateContainer
	case "container DELETE container ":
		return OperationDeleteContainer
	case "container GET container ", "container HEAD container ", "container GET container metadata", "container HEAD container metadata":
		return OperationGetContainerProperties
	case "container PUT container metadata":
		return OperationSetContainerMetadata
	case "container GET container list":
		return OperationListBlobs
	case "blob PUT  ":
		return OperationPutBlob
	case "blob PUT  block":
		return OperationPutBlock
	case "blob PUT  blocklist":
		return OperationPutBlockList
	case "blob GET  blocklist":
		return OperationGetBlockList
	case "blob GET  ":
		return OperationGetBlob
	case "blob HEAD  ":
		return OperationGetBlobProperties
	case "blob GET  metadata", "blob HEAD  metadata":
		return OperationGetBlobMetadata
	case "blob PUT  metadata":
		return OperationSetBlobMetadata
	case "blob PUT  properties":
		return OperationSetBlobProperties
	case "blob PUT  tier":
		return OperationSetBlobTier
	case "blob DELETE  ":
		return OperationDeleteBlob
	}
	return OperationUnknown
}

// rawPath is the path as it stood on the request line. r.URL would re-encode some characters, and the signature is
// over what the client sent.
func rawPath(r *http.Request) string {
	if !strings.HasPrefix(r.RequestURI, "/") {
		return r.URL.EscapedPath()
	}
	path, _, _ := strings.Cut(r.RequestURI, "?")
	return path
}

// hostAccount is the account of a host such as acct.blob.core.windows.net; other hosts use path style.
func hostAccount(host string) (string, bool) {
	account, rest, ok := strings.Cut(host, ".")
	if !ok || account == "" || !strings.HasPrefix(rest, "blob.") {
		return "", false
	}
	return account, true
}

// validContainer holds the rules of "Naming and referencing containers, blobs, and metadata".
func validContainer(name string) bool {
	if name == "$root" || name == "$web" || name == "$logs" {
		return true
	}
	if len(name) < 3 || len(name) > 63 || strings.Contains(name, "--") {
		return false
	}
	if name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// validBlob: any characters, 1 to 1,024 of them.
func validBlob(name string) bool {
	return utf8.ValidString(name) && name != "" && utf8.RuneCountInString(name) <= 1024
}
