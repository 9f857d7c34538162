// Package claimcheck is what travels on the queue and where it may point: a message carries a claim (a reference, never
// the document), and everything a claim is exchanged for is in Blob storage.
//
// The straight line through the package:
//
//	body ──Decode──▶ Claim ──Policy.Check──▶ Reference ──Store.Fetch──▶ Document
//	                   │
//	                   └──ResultName──▶ Store.Lookup … Store.Create(Result)
//
// Four kinds of error say who has to act. A *PoisonError means the message cannot be understood or may not be followed. A
// *DocumentError means this one document can never succeed, and is itself a result. A *DependencyError means the storage
// account, not the message, is in trouble. Anything else is a cancelled context or a defect.
//
// A producer needs Claim and Encode alone. The contract is also published as JSON Schema in the folder schema, and the
// README beside this file is written for producers in any language.
package claimcheck
