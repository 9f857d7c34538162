package claimcheck_test

import (
	"fmt"

	"millrace/claimcheck"
)

// A producer uploads the document, pins the ETag that the upload returned, and sends the encoded claim as the body of a
// message with claimcheck.ContentType as its content type.
func ExampleClaim_Encode() {
	claim := claimcheck.Claim{
		Tenant:        "acme",
		Model:         "summarize",
		Blob:          "https://acct.blob.core.windows.net/in/acme/a.txt", // blobClient.URL()
		CorrelationID: "7f3a",
		ETag:          `"0x8DC0000000000A1"`, // string(*uploaded.ETag), quotes and all
	}
	body, err := claim.Encode()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(string(body))
	// Output:
	// {"version":"1","tenant":"acme","model":"summarize","blob":"https://acct.blob.core.windows.net/in/acme/a.txt","correlation_id":"7f3a","etag":"0x8DC0000000000A1"}
}

// The place of the result is known as soon as the claim is.
func ExampleClaim_ResultName() {
	claim := claimcheck.Claim{
		Tenant: "acme", Model: "summarize", CorrelationID: "7f3a",
		Blob: "https://acct.blob.core.windows.net/in/acme/a.txt", ETag: "0x8DC0000000000A1",
	}
	name, err := claim.ResultName()
	fmt.Println(name, err)
	// Output:
	// acme/7f3a/4cc477b408b47097b25cb0cf9437ce00ce07abcbc009399ea955dc2623270f2c.json <nil>
}

// A refused body says which field is wrong and what to do.
func ExampleDecode() {
	_, err := claimcheck.Decode([]byte(`{"version":"1","Tenant":"acme"}`))
	fmt.Println(err)
	// Output:
	// invalid_field: Tenant: unknown field: names are lower case, write tenant
}
