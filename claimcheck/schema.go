package claimcheck

import _ "embed"

//go:embed schema/claim.schema.json
var claimSchema string

//go:embed schema/result.schema.json
var resultSchema string

// ClaimSchema returns the JSON Schema (draft 2020-12) of an encoded Claim, the file schema/claim.schema.json. Every body
// that Decode accepts is valid by it. It is not the whole contract: duplicate names and dangerous references are beyond a
// schema, and its description says so.
func ClaimSchema() string { return claimSchema }

// ResultSchema returns the JSON Schema (draft 2020-12) of an encoded Result, the file schema/result.schema.json. It
// leaves unknown fields alone, as DecodeResult does.
func ResultSchema() string { return resultSchema }
