package app

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"millrace/claimcheck"
	"millrace/internal/redact"
)

// ClientFromEnv returns what a client of the fleet has in common with its workers: how to reach broker and storage, the
// queue, the results and the catalog. Nothing is required and nothing has a default, since no command needs all of it:
// what is empty was not set. The error is that no identity can be made.
func ClientFromEnv(lookup func(string) (string, bool)) (Config, error) {
	get := func(name string) string { v, _ := lookup(name); return v }
	c := Config{
		ServiceBusConnection: get("SERVICEBUS_CONNECTION_STRING"),
		ServiceBusNamespace:  get("SERVICEBUS_FULLY_QUALIFIED_NAMESPACE"),
		StorageConnection:    get("AZURE_STORAGE_CONNECTION_STRING"),
		Queue:                get("MILLRACE_QUEUE"),
		Catalog:              get("MILLRACE_CATALOG"),
		Results:              get("MILLRACE_RESULTS"),
	}
	return c, c.identify()
}

// identify makes the identity for what no connection string opens, unless there is one.
func (c *Config) identify() error {
	if c.Credential != nil {
		return nil
	}
	credential, err := azidentity.NewDefaultAzureCredential(nil)
	if err != nil {
		return redact.Wrap("open identity", err)
	}
	c.Credential = credential
	return nil
}

// NoRetries is for a worker's client: a worker keeps its own lines, and what the SDK retries on one that is lost sets up
// links again that nobody closes.
const NoRetries = -1

// OpenBus makes one client of the broker and sends nothing. Operations are tried again so many times, after shorter pauses
// than the SDK's own; settlements keep those.
func (c Config) OpenBus(retries int32) (*azservicebus.Client, error) {
	if err := c.checkBus(); err != nil {
		return nil, err
	}
	options := &azservicebus.ClientOptions{
		ApplicationID: "millrace",
		RetryOptions:  azservicebus.RetryOptions{MaxRetries: retries, RetryDelay: 500 * time.Millisecond, MaxRetryDelay: 10 * time.Second},
	}
	if c.Dial != nil {
		options.NewWebSocketConn = func(ctx context.Context, args azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			host, err := url.Parse(args.Host) // the address the SDK would open a web socket to
			if err != nil {
				return nil, err
			}
			return c.Dial(ctx, "tcp", host.Host)
		}
	}
	if c.ServiceBusConnection != "" {
		client, err := azservicebus.NewClientFromConnectionString(c.ServiceBusConnection, options)
		if err != nil { // the text may hold the string
			return nil, errors.New("SERVICEBUS_CONNECTION_STRING: cannot be read; copy it again from the namespace's shared access policies")
		}
		return client, nil
	}
	return azservicebus.NewClient(c.ServiceBusNamespace, c.Credential, options)
}

// checkBus reports whether it is said, and said once, where the broker is.
func (c Config) checkBus() error {
	switch {
	case c.ServiceBusConnection == "" && c.ServiceBusNamespace == "":
		return errors.New("SERVICEBUS_CONNECTION_STRING or SERVICEBUS_FULLY_QUALIFIED_NAMESPACE: one of them must be set")
	case c.ServiceBusConnection != "" && c.ServiceBusNamespace != "":
		return errors.New("SERVICEBUS_CONNECTION_STRING and SERVICEBUS_FULLY_QUALIFIED_NAMESPACE: set only one of them")
	}
	return nil
}

// OpenStorage returns how accounts are opened: the one of the connection string with its key, every other with the
// identity. account is the URL of the former, without a slash at the end, or "" if there is none.
func (c Config) OpenStorage() (account string, open claimcheck.Open, err error) {
	identity := claimcheck.OpenIdentity(c.Credential)
	if c.StorageConnection == "" {
		return "", identity, nil
	}
	known, err := service.NewClientFromConnectionString(c.StorageConnection, nil)
	if err != nil {
		return "", nil, errors.New("AZURE_STORAGE_CONNECTION_STRING: cannot be read; copy it again from the storage account's access keys")
	}
	account, _, _ = strings.Cut(known.URL(), "?")
	account = strings.ToLower(strings.TrimSuffix(account, "/"))
	withKey := claimcheck.OpenConnectionString(c.StorageConnection)
	return account, func(of string, options *service.ClientOptions) (*service.Client, error) {
		if of == account {
			return withKey(of, options)
		}
		return identity(of, options)
	}, nil
}

// ContainerURL returns the URL of a container that is given by its URL or by its name in account. ok is false for a name
// without an account.
func ContainerURL(account, given string) (containerURL string, ok bool) {
	if strings.Contains(given, "://") {
		return given, true
	}
	return account + "/" + given, account != ""
}

// storage returns the URL of the results container and how accounts are opened.
func (c Config) storage() (results string, open claimcheck.Open, err error) {
	account, open, err := c.OpenStorage()
	if err != nil {
		return "", nil, err
	}
	results, ok := ContainerURL(account, c.Results)
	if !ok {
		return "", nil, errors.New("MILLRACE_RESULTS: is no URL; a container's name alone needs AZURE_STORAGE_CONNECTION_STRING")
	}
	return results, open, nil
}
