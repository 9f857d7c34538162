package model

import (
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

// NewTransport returns the transport that a client with these options makes for itself, for tests that replace its wire.
func NewTransport(opts *Options) *http.Transport { return newTransport(opts.withDefaults()) }

// NewCredential returns the token store of a client.
func NewCredential(source azcore.TokenCredential) azcore.TokenCredential {
	return newCredential(source)
}
