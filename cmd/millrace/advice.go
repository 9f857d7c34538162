package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"millrace/claimcheck"
	"millrace/internal/redact"
)

// The built-in roles that an identity needs, by their names in Azure.
const (
	roleSender      = "Azure Service Bus Data Sender"
	roleReceiver    = "Azure Service Bus Data Receiver"
	roleContributor = "Storage Blob Data Contributor"
	roleReader      = "Storage Blob Data Reader"
)

// isNotFound reports whether a blob, and not its container, is missing.
func isNotFound(err error) bool {
	return bloberror.HasCode(err, bloberror.BlobNotFound)
}

// blobAdvice turns an error of storage into one line that says what to do. container is what was used, setting where it
// was named, and role what an identity needs for it.
func blobAdvice(err error, container, setting, role string) error {
	status, code := 0, ""
	var dependency *claimcheck.DependencyError
	var response *azcore.ResponseError
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.As(err, &dependency):
		status, code = dependency.Status, dependency.Code
		if status == 0 && dependency.Err != nil {
			err = dependency.Err
		}
	case errors.As(err, &response):
		status, code = response.StatusCode, response.ErrorCode
	case errors.Is(err, claimcheck.ErrNoResult):
		return err
	}
	switch {
	case code == "ContainerNotFound":
		return fmt.Errorf("the container %s does not exist; create it, or correct %s", container, setting)
	case code == "AuthenticationFailed" || status == http.StatusUnauthorized:
		return fmt.Errorf("%s refuses the credentials; copy AZURE_STORAGE_CONNECTION_STRING again, or sign in (az login) without it", container)
	case status == http.StatusForbidden:
		return fmt.Errorf("%s refuses access (%s); the identity needs the role %s, and its network must be allowed", container, code, role)
	case status == 0:
		return fmt.Errorf("cannot reach %s; check %s and the network: %w", container, setting, redact.Error(err))
	}
	return redact.Error(err)
}

// busAdvice turns an error of the broker into one line that says what to do.
func busAdvice(err error, queue, role string) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	code := azservicebus.Code("")
	var bus *azservicebus.Error
	if errors.As(err, &bus) {
		code = bus.Code
	}
	switch code {
	case azservicebus.CodeNotFound:
		return fmt.Errorf("the queue %q does not exist in this namespace; create it, or correct MILLRACE_QUEUE or --queue", queue)
	case azservicebus.CodeUnauthorizedAccess:
		return fmt.Errorf("the queue %q refuses access; the identity needs the role %s, a connection string the claim of that name", queue, role)
	}
	return fmt.Errorf("cannot reach Service Bus; check SERVICEBUS_CONNECTION_STRING or SERVICEBUS_FULLY_QUALIFIED_NAMESPACE and the network: %w", redact.Error(err))
}
