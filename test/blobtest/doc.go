// Package blobtest is a blob store for the unmodified Azure SDK: the part of the Blob service's REST API that this project
// uses, written from its documentation and not compared with the service itself.
//
// A [Server] is an http.Handler. Its zero value works: everything in memory, the well-known development account and
// key, any bearer token. Put it behind httptest, behind an in-memory listener in a testing/synctest bubble (it starts
// no goroutine and takes its time from package time), or let it listen by itself with [Server.Listen].
//
// What is served, by the names of Microsoft's "Blob service REST API": Create Container, Delete Container, Get
// Container Properties, Set Container Metadata, List Containers, List Blobs (flat and by delimiter), Put Blob, Put
// Block, Put Block List, Get Block List, Get Blob (with ranges), Get Blob Properties, Get and Set Blob Metadata, Set
// Blob Properties, Set Blob Tier, Delete Blob and Get Account Information. Anything else is answered 501
// NotImplemented rather than half done.
//
// Three rules are kept because the fleet's safety stands on them:
//
//   - A write is visible when it is complete and not before: a body that is cut leaves nothing behind.
//   - The conditional headers decide under one lock: of any number of Put Blob with If-None-Match: * on one name,
//     exactly one is answered 201 and the others 409 BlobAlreadyExists.
//   - Every write, of content or of metadata, changes the ETag, also when the clock stands still.
//
// Where it differs from the service: there are no versions, snapshots, leases, tags, copies and soft delete (a
// versionid or snapshot in a query names something that does not exist: 404); a deleted container's name is free at
// once; metadata names are kept in lower case; a shared access signature is refused, or let through unverified if
// [Server.AllowSAS] is set.
package blobtest
