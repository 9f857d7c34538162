package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"millrace/claimcheck"
)

func resultsWaitCommand() *cobra.Command {
	var f waitFlags
	var tenant string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "wait NAME... | --tenant TENANT CORRELATION-ID... | -",
		Short: "Wait for results",
		Long: `Waits until every result is there. - reads names from standard input, one a line, as "millrace submit" prints them with
and without --json. A correlation id is done when there is any result under it. The exit code is 0 if all are there, and 1
if one is missing when the time is up or ended as --fail-on says. Dead letters are not looked at: "millrace submit --wait"
does that.`,
		Example: `  millrace submit --tenant fernhill --model rescore ./articles > sent && millrace results wait - < sent`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{errors.New("name results, or --tenant and correlation ids, or - for standard input")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.timeout < 0 {
				return usageError{fmt.Errorf("--timeout %s: is negative", f.timeout)}
			}
			unwanted, err := outcomesOf("fail-on", f.failOn)
			if err != nil {
				return err
			}
			c, err := openClient(os.LookupEnv)
			if err != nil {
				return err
			}
			a, err := openArchive(c)
			if err != nil {
				return err
			}
			defer a.close()
			awaited, err := awaitedOf(args, tenant, cmd.InOrStdin())
			if err != nil {
				return err
			}
			s := newLineScreen(cmd, asJSON)
			return f.await(cmd.Context(), &waiter{store: a.store, archive: a, client: c, screen: s}, awaited, unwanted)
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&tenant, "tenant", "", "tenant, if correlation ids are given")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object for each result")
	completeNames(cmd)
	return cmd
}

// awaitedOf is what the arguments name, each once.
func awaitedOf(args []string, tenant string, stdin io.Reader) ([]receipt, error) {
	var given []string
	for _, arg := range args {
		if arg != "-" {
			given = append(given, arg)
			continue
		}
		lines := bufio.NewScanner(stdin)
		lines.Buffer(make([]byte, 4096), longestLine)
		for lines.Scan() {
			if name := nameIn(lines.Text()); name != "" {
				given = append(given, name)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, usageError{fmt.Errorf("standard input: %w", err)}
		}
	}
	var awaited []receipt
	seen := make(map[string]bool)
	for _, g := range given {
		if seen[g] {
			continue
		}
		seen[g] = true
		parts := strings.Split(g, "/")
		var err error
		switch {
		case len(parts) == 3:
			var name string
			name, err = claimcheck.ResultName(parts[0], strings.TrimPrefix(parts[1], "_"), strings.TrimSuffix(parts[2], ".json"))
			if name != g && err == nil {
				err = errors.New("it does not end in .json")
			}
			awaited = append(awaited, receipt{Tenant: parts[0], CorrelationID: parts[1], Result: g})
		case len(parts) == 1 && tenant != "":
			_, err = claimcheck.ResultName(tenant, g, strings.Repeat("0", 64))
			awaited = append(awaited, receipt{Tenant: tenant, CorrelationID: g})
		case len(parts) == 1:
			err = errors.New("add --tenant if it is a correlation id")
		default:
			err = errors.New("a name is {tenant}/{correlation id}/{work id}.json")
		}
		if err != nil {
			return nil, usageError{fmt.Errorf("%s is no result's name: %w", shown(g), err)}
		}
	}
	if len(awaited) == 0 {
		return nil, usageError{errors.New("standard input names no result")}
	}
	return awaited, nil
}

// nameIn finds the name in a line of submit's output.
func nameIn(line string) string {
	line = strings.TrimSpace(line)
	if strings.HasPrefix(line, "{") {
		var r receipt
		if json.Unmarshal([]byte(line), &r) == nil {
			return r.Result
		}
	}
	return line[strings.LastIndexByte(line, '\t')+1:]
}
