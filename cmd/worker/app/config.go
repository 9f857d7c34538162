package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/sethvargo/go-envconfig"
)

// Config is everything a worker process is told. The tagged fields are its environment; the table in the README of
// cmd is made from them.
type Config struct {
	ServiceBusConnection string `env:"SERVICEBUS_CONNECTION_STRING" doc:"Service Bus connection string; without it the namespace below and an identity"`
	ServiceBusNamespace  string `env:"SERVICEBUS_FULLY_QUALIFIED_NAMESPACE" doc:"e.g. contoso.servicebus.windows.net, with Microsoft Entra ID"`
	StorageConnection    string `env:"AZURE_STORAGE_CONNECTION_STRING" doc:"connection string of the storage account it names; every other account with Microsoft Entra ID"`

	Queue   string `env:"MILLRACE_QUEUE,required" doc:"name of the queue with the claim checks"`
	Catalog string `env:"MILLRACE_CATALOG,default=catalog.yaml" doc:"path of the catalog: tenants, deployments, aliases, policy"`
	Results string `env:"MILLRACE_RESULTS,required" doc:"URL of the container for results, or its name in the account of the connection string"`

	Slots       int           `env:"MILLRACE_SLOTS,default=32" doc:"messages in hand at once, in this process"`
	Receivers   int           `env:"MILLRACE_RECEIVERS,default=2" doc:"receiver links the slots are divided among"`
	Connections int           `env:"MILLRACE_CONNECTIONS,default=1" doc:"AMQP connections the receivers share"`
	MaxReplicas int           `env:"MILLRACE_MAX_REPLICAS,default=1" doc:"most processes that ever run; each may spend limit / this of every deployment"`
	Drain       time.Duration `env:"MILLRACE_DRAIN,default=25s" doc:"how long started work may take after SIGTERM; keep it below the pod's grace period"`
	IdleExit    time.Duration `env:"MILLRACE_IDLE_EXIT,default=0s" doc:"end with exit code 0 after so long without a message, for jobs; 0s never"`
	Listen      string        `env:"MILLRACE_LISTEN,default=:8080" doc:"address of /metrics, /livez and /readyz, or off"`
	LogLevel    slog.Level    `env:"MILLRACE_LOG_LEVEL,default=info" doc:"debug, info, warn or error"`

	// Injected dependencies. Nil means the real thing.
	Logger     *slog.Logger                                                      // default: JSON on standard error at LogLevel
	Dial       func(ctx context.Context, network, addr string) (net.Conn, error) // connections to the broker
	Transport  http.RoundTripper                                                 // requests to Blob and to the model
	Credential azcore.TokenCredential                                            // default: azidentity.DefaultAzureCredential
	Changed    <-chan struct{}                                                   // tells that the catalog may have changed; default: its folder is watched
}

// FromEnv reads the settings that lookup knows. It reports every bad value at once, a line each.
func FromEnv(lookup func(string) (string, bool)) (Config, error) {
	var c Config
	var errs []error
	v := reflect.ValueOf(&c).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if field.Tag.Get("env") == "" {
			continue
		}
		value, err := read(field, lookup)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", envName(field), advice(err, field)))
			value, _ = read(field, nothing) // its default, so that it is no second problem below
		}
		v.Field(i).Set(value)
	}
	return c, errors.Join(append(errs, c.check())...)
}

// read gets one setting. The library stops at the first bad value; a struct of one field at a time makes it tell all.
func read(field reflect.StructField, lookup func(string) (string, bool)) (reflect.Value, error) {
	one := reflect.New(reflect.StructOf([]reflect.StructField{field}))
	err := envconfig.ProcessWith(context.Background(), &envconfig.Config{
		Target: one.Interface(), Lookuper: envconfig.LookuperFunc(lookup),
	})
	return one.Elem().Field(0), err
}

func nothing(string) (string, bool) { return "", false }

func envName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("env"), ",")
	return name
}

// advice says what to do about a value; the value itself may be a secret and is not repeated.
func advice(err error, f reflect.StructField) string {
	if errors.Is(err, envconfig.ErrMissingRequired) {
		return "is not set; it is the " + f.Tag.Get("doc")
	}
	return fmt.Sprintf("cannot be read as %s; it is: %s", kindName(f.Type), f.Tag.Get("doc"))
}

func kindName(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[time.Duration]():
		return "a duration such as 25s"
	case reflect.TypeFor[slog.Level]():
		return "a log level"
	}
	if t.Kind() == reflect.Int {
		return "a whole number"
	}
	return "a " + t.Kind().String()
}

// check holds what one value alone cannot show.
func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if err := c.checkBus(); err != nil {
		errs = append(errs, err)
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"MILLRACE_SLOTS", c.Slots, 5000}, {"MILLRACE_RECEIVERS", c.Receivers, 100},
		{"MILLRACE_CONNECTIONS", c.Connections, 100}, {"MILLRACE_MAX_REPLICAS", c.MaxReplicas, 10000},
	} {
		if n.value < 1 || n.value > n.max {
			bad("%s: %d is not between 1 and %d", n.name, n.value, n.max)
		}
	}
	if c.Connections > c.Receivers && c.Receivers >= 1 {
		bad("MILLRACE_CONNECTIONS: %d connections for %d receivers; a receiver uses one, so lower it or raise MILLRACE_RECEIVERS", c.Connections, c.Receivers)
	}
	if c.Receivers > c.Slots && c.Slots >= 1 {
		bad("MILLRACE_RECEIVERS: %d receivers for %d slots; a receiver needs at least one slot", c.Receivers, c.Slots)
	}
	if c.IdleExit < 0 {
		bad("MILLRACE_IDLE_EXIT: %s is negative", c.IdleExit)
	}
	if subscription := strings.Contains(strings.ToLower(c.Queue), "/subscriptions/"); subscription {
		bad("MILLRACE_QUEUE: %q is a topic's subscription; give the name of a queue, and forward the subscription to it", c.Queue)
	}
	if c.Drain <= 0 {
		bad("MILLRACE_DRAIN: %s is not a positive duration", c.Drain)
	}
	return errors.Join(errs...)
}
