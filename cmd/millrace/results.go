package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"millrace/claimcheck"
)

const resultsLong = `Finds, reads and waits for results. A result is named {tenant}/{correlation id}/{work id}.json in the results container,
and its name follows from the claim alone.

Environment: MILLRACE_RESULTS, the URL of the container or its name in the account of AZURE_STORAGE_CONNECTION_STRING;
without a connection string an identity (az login) with the role Storage Blob Data Reader.`

func resultsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "results",
		Short: "Find, read, list and wait for results; retry failures",
		Long:  resultsLong,
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(resultsWhereCommand(), resultsGetCommand(), resultsListCommand(), resultsWaitCommand(), resultsRetryCommand())
	return cmd
}

func resultsWhereCommand() *cobra.Command {
	var claim claimcheck.Claim
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "where",
		Short: "Say where the result of a claim is, or will be",
		Long: `Says where the result of a claim is, or will be, and sends nothing. With --blob and --model it is one name; without them
it is the folder of the correlation id. The ETag and the run are part of the name: give them as the claim has them.`,
		Example: `  millrace results where --tenant fernhill --correlation-id returns-policy.md
  millrace results where --tenant fernhill --correlation-id a1 --model rescore --blob https://acct.blob.core.windows.net/in/fernhill/a.txt --etag 0x8DF4FCDFBC3244D`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := openClient(os.LookupEnv)
			if err != nil {
				return err
			}
			return where(c, claim, newLineScreen(cmd, asJSON))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&claim.Tenant, "tenant", "", "tenant of the claim")
	flags.StringVar(&claim.CorrelationID, "correlation-id", "", "correlation id of the claim")
	flags.StringVar(&claim.Model, "model", "", "alias that the claim is for")
	flags.StringVar(&claim.Blob, "blob", "", "URL of the document")
	flags.StringVar(&claim.ETag, "etag", "", "ETag that the claim pins, if it does")
	flags.StringVar(&claim.Run, "run", "", "run of the claim, if it has one")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object instead of text")
	completeNames(cmd)
	return cmd
}

func where(c *client, claim claimcheck.Claim, s *screen) error {
	switch {
	case claim.Tenant == "" || claim.CorrelationID == "":
		return usageError{errors.New("name the claim with --tenant and --correlation-id")}
	case (claim.Blob == "") != (claim.Model == ""):
		return usageError{errors.New("--blob and --model belong together: a name needs both, a folder neither")}
	case claim.Blob == "" && (claim.ETag != "" || claim.Run != ""):
		return usageError{errors.New("--etag and --run are part of a name: give --blob and --model too")}
	}
	place := struct {
		Name   string `json:"name,omitempty"`
		Folder string `json:"folder"`
		URL    string `json:"url,omitempty"`
	}{}
	probe, err := claimcheck.ResultName(claim.Tenant, claim.CorrelationID, strings.Repeat("0", 64))
	if err != nil {
		return usageError{err}
	}
	place.Folder = probe[:strings.LastIndexByte(probe, '/')+1]
	at := place.Folder
	if claim.Blob != "" {
		if at, err = claim.ResultName(); err != nil {
			return usageError{errors.New(detail(err))}
		}
		place.Name = at
	}
	if c.results != "" {
		place.URL = c.results + "/" + at
	}
	if s.json {
		return encode(s.out, place)
	}
	if place.URL != "" {
		at = place.URL
	}
	return s.say("%s", at)
}

func resultsGetCommand() *cobra.Command {
	var tenant string
	var onlyText, asJSON bool
	cmd := &cobra.Command{
		Use:   "get NAME | --tenant TENANT CORRELATION-ID",
		Short: "Print a result, or only its answer",
		Long: `Prints the result of that name, or the latest one under a correlation id. --text prints only the answer, as it is and
without a line end; the exit code is 1 if there is none.`,
		Example: `  millrace results get --tenant fernhill returns-policy.md
  millrace results get --text fernhill/returns-policy.md/c13ab3dd6154c9eefb674d4ca827c865d786cec232453c62b0fd70896693f742.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError{errors.New("name one result, or --tenant and one correlation id")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if onlyText && asJSON {
				return usageError{errors.New("--text and --json: choose one of them")}
			}
			a, err := openArchiveFrom(os.LookupEnv)
			if err != nil {
				return err
			}
			defer a.close()
			f, err := a.get(cmd.Context(), tenant, args[0], newLineScreen(cmd, asJSON))
			if err != nil {
				return err
			}
			return printResult(cmd.OutOrStdout(), f.result, onlyText, asJSON)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&tenant, "tenant", "", "tenant, if a correlation id is given")
	flags.BoolVar(&onlyText, "text", false, "print only the answer")
	flags.BoolVar(&asJSON, "json", false, "print the result on one line")
	completeNames(cmd)
	return cmd
}

func openArchiveFrom(lookup func(string) (string, bool)) (*archive, error) {
	c, err := openClient(lookup)
	if err != nil {
		return nil, err
	}
	return openArchive(c)
}

// get reads one result by its name or, with a tenant, the latest of a correlation id.
func (a *archive) get(ctx context.Context, tenant, given string, s *screen) (found, error) {
	if strings.Contains(given, "/") {
		name := strings.TrimPrefix(given, a.url+"/")
		r, err := a.store.Read(ctx, name)
		if errors.Is(err, claimcheck.ErrNoResult) {
			return found{}, fmt.Errorf("there is no result %s in %s", shown(name), a.url)
		}
		return found{name: name, result: r}, a.advice(err)
	}
	if tenant == "" {
		return found{}, usageError{fmt.Errorf("%q is no result's name: add --tenant if it is a correlation id", shown(given))}
	}
	all, err := a.of(ctx, tenant, given)
	if err != nil {
		return found{}, err
	}
	if len(all) == 0 {
		return found{}, fmt.Errorf("tenant %s has no result with correlation id %s in %s", shown(tenant), shown(given), a.url)
	}
	if len(all) > 1 {
		s.note("%d results have this correlation id; this is the latest, %s", len(all), all[0].name)
	}
	return all[0], nil
}

func printResult(w io.Writer, r *claimcheck.Result, onlyText, asJSON bool) error {
	if onlyText {
		if r.Text == "" {
			return fmt.Errorf("there is no answer: %s", strings.Join(slices.DeleteFunc([]string{string(r.Outcome), string(r.Reason), r.Detail}, isEmpty), ", "))
		}
		_, err := io.WriteString(w, r.Text)
		return err
	}
	body, err := r.Encode()
	if err != nil {
		return err
	}
	if !asJSON {
		var indented strings.Builder
		e := json.NewEncoder(&indented)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(json.RawMessage(body)); err != nil {
			return err
		}
		_, err = io.WriteString(w, indented.String())
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", body)
	return err
}
