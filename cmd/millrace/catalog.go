package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"millrace/internal/catalog"
)

func catalogCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "catalog",
		Short: "Check or print the catalog: tenants, deployments, aliases, policy",
		Args:  noArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var asJSON bool
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Report every problem of a catalog with its line and column",
		Long: `Reads a catalog and the files it names, as a worker does, and reports every problem with its line and column. FILE is
MILLRACE_CATALOG or catalog.yaml if it is left out. The exit code is 0 if there is no problem, else 2.`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkCatalog(catalogPath(args, os.LookupEnv), asJSON, cmd.OutOrStdout())
		},
	}
	show := &cobra.Command{
		Use:   "print [FILE]",
		Short: "Print a catalog as a worker understands it, defaults included",
		Long: `Prints a catalog as a worker understands it, with defaults filled in. It holds no secret: of a key only the place is
known. FILE is MILLRACE_CATALOG or catalog.yaml if it is left out.`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := loadCatalog(catalogPath(args, os.LookupEnv))
			if err != nil {
				return setupError{err}
			}
			if asJSON {
				return encode(cmd.OutOrStdout(), viewOf(c))
			}
			return viewOf(c).print(cmd.OutOrStdout())
		},
	}
	for _, sub := range []*cobra.Command{check, show} {
		sub.Flags().BoolVar(&asJSON, "json", false, "print one JSON object instead of text")
		cmd.AddCommand(sub)
	}
	return cmd
}

// oneFile allows at most one argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Errorf("unexpected argument %q: %s takes one file", args[1], cmd.CommandPath())}
	}
	return nil
}

// catalogPath is the file that is meant: the argument, else the environment's, else the default of a worker.
func catalogPath(args []string, lookup func(string) (string, bool)) string {
	if len(args) > 0 {
		return args[0]
	}
	if path, ok := lookup("MILLRACE_CATALOG"); ok && path != "" {
		return path
	}
	return "catalog.yaml"
}

func loadCatalog(path string) (*catalog.Catalog, error) {
	c, err := catalog.Load(path)
	if errors.Is(err, fs.ErrNotExist) && !errors.As(err, new(*catalog.Problem)) {
		return nil, fmt.Errorf("there is no catalog at %s; name its file or set MILLRACE_CATALOG", shown(path))
	}
	return c, err
}

// checkCatalog says whether the catalog is good. Its problems are the error's lines, or part of the JSON.
func checkCatalog(path string, asJSON bool, w io.Writer) error {
	c, err := loadCatalog(path)
	if err == nil && !asJSON {
		_, err := fmt.Fprintf(w, "%s: good: %d tenants, %d deployments, %d aliases; hash %s\n", path, len(c.Tenants), len(c.Deployments), len(c.Aliases), c.Hash)
		return err
	}
	if err == nil {
		return encode(w, report{OK: true, Hash: c.Hash})
	}
	problems := problemsOf(err)
	if asJSON {
		if encodeErr := encode(w, report{Problems: problems}); encodeErr != nil {
			return encodeErr
		}
		return setupError{fmt.Errorf("%s has %d problems", shown(path), len(problems))}
	}
	if len(problems) < 2 {
		return setupError{err}
	}
	return setupError{fmt.Errorf("%s has %d problems\n%w", shown(path), len(problems), err)}
}

// report is what a check found.
type report struct {
	OK       bool      `json:"ok"`
	Hash     string    `json:"hash,omitempty"`
	Problems []problem `json:"problems,omitempty"`
}

type problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
}

// problemsOf splits what Load joined.
func problemsOf(err error) []problem {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		var p *catalog.Problem
		if errors.As(err, &p) {
			return []problem{{p.File, p.Line, p.Column, p.Path, p.Message}}
		}
		return []problem{{Message: err.Error()}}
	}
	var all []problem
	for _, one := range joined.Unwrap() {
		all = append(all, problemsOf(one)...)
	}
	return all
}

// view is a catalog for reading: no prompts and no schemas, but where they come from.
type view struct {
	Hash        string           `json:"hash"`
	Tenants     []tenantView     `json:"tenants"`
	Deployments []deploymentView `json:"deployments"`
	Aliases     []aliasView      `json:"aliases"`
	Policy      policyView       `json:"policy"`
}

type tenantView struct {
	Name       string   `json:"name"`
	Team       string   `json:"team,omitempty"`
	Weight     float64  `json:"weight"`
	Containers []string `json:"containers"`
}

type deploymentView struct {
	Name          string     `json:"name"`
	Endpoint      string     `json:"endpoint"`
	Deployment    string     `json:"deployment"`
	APIVersion    string     `json:"api_version"`
	TPM           int        `json:"tpm"`
	ReservedTPM   int        `json:"reserved_tpm"`
	RPM           int        `json:"rpm,omitempty"`
	ContextWindow int        `json:"context_window,omitempty"`
	Key           string     `json:"key"` // where it is, or that there is none
	Price         *priceView `json:"price,omitempty"`
}

// priceView is amounts for a million tokens.
type priceView struct {
	Rule     string  `json:"rule"`
	Currency string  `json:"currency"`
	Input    float64 `json:"input"`
	Cached   float64 `json:"cached"`
	Output   float64 `json:"output"`
}

type aliasView struct {
	Name                string   `json:"name"`
	Kind                string   `json:"kind"`
	Deployments         []string `json:"deployments"`
	PromptVersion       string   `json:"prompt_version"`
	PromptHash          string   `json:"prompt_hash"`
	MaxCompletionTokens int      `json:"max_completion_tokens"`
	Temperature         *float64 `json:"temperature,omitempty"`
	TopP                *float64 `json:"top_p,omitempty"`
	Seed                *int64   `json:"seed,omitempty"`
	Stop                []string `json:"stop,omitempty"`
	Schema              string   `json:"schema,omitempty"`
}

type policyView struct {
	MaxDocumentBytes  int64 `json:"max_document_bytes"`
	AllowLoopbackHTTP bool  `json:"allow_loopback_http"`
}

func viewOf(c *catalog.Catalog) *view {
	v := &view{Hash: c.Hash, Policy: policyView{c.Policy.MaxDocumentBytes, c.Policy.AllowLoopbackHTTP}}
	for _, t := range c.Tenants {
		v.Tenants = append(v.Tenants, tenantView{t.Name, t.Team, t.Weight, t.Containers})
	}
	for _, d := range c.Deployments {
		key := "Microsoft Entra ID"
		switch {
		case d.APIKeyEnv != "":
			key = "environment " + d.APIKeyEnv
		case d.APIKeyFile != "":
			key = "file " + d.APIKeyFile
		}
		v.Deployments = append(v.Deployments, deploymentView{
			d.Name, d.Endpoint, d.Deployment, d.APIVersion, d.TPM, d.ReservedTPM, d.RPM, d.ContextWindow, key, (*priceView)(d.Price),
		})
	}
	for _, a := range c.Aliases {
		p := a.Parameters
		alias := aliasView{
			Name: a.Name, Kind: a.Kind, PromptVersion: a.PromptVersion, PromptHash: a.PromptHash,
			MaxCompletionTokens: p.MaxCompletionTokens, Temperature: p.Temperature, TopP: p.TopP, Seed: p.Seed, Stop: p.Stop,
		}
		for _, d := range a.Deployments {
			alias.Deployments = append(alias.Deployments, d.Name)
		}
		if a.Schema != nil {
			alias.Schema = a.Schema.Name
		}
		v.Aliases = append(v.Aliases, alias)
	}
	slices.SortFunc(v.Tenants, func(a, b tenantView) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(v.Deployments, func(a, b deploymentView) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(v.Aliases, func(a, b aliasView) int { return strings.Compare(a.Name, b.Name) })
	return v
}

// print writes the view as tables.
func (v *view) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TENANT\tTEAM\tWEIGHT\tCONTAINERS")
	for _, x := range v.Tenants {
		fmt.Fprintf(t, "%s\t%s\t%g\t%s\n", x.Name, dash(x.Team), x.Weight, strings.Join(x.Containers, " "))
	}
	fmt.Fprintln(t, "\nDEPLOYMENT\tTPM\tRESERVED\tRPM\tCONTEXT\tAPI\tKEY\tNAME\tENDPOINT")
	for _, x := range v.Deployments {
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", x.Name, x.TPM, x.ReservedTPM, orDash(x.RPM), orDash(x.ContextWindow), x.APIVersion, x.Key, x.Deployment, x.Endpoint)
	}
	fmt.Fprintln(t, "\nALIAS\tKIND\tDEPLOYMENTS\tPROMPT\tHASH\tMAX OUTPUT\tSCHEMA")
	for _, x := range v.Aliases {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%.12s\t%d\t%s\n", x.Name, x.Kind, strings.Join(x.Deployments, ","), x.PromptVersion, x.PromptHash, x.MaxCompletionTokens, dash(x.Schema))
	}
	fmt.Fprintf(t, "\nPOLICY\ndocuments of at most %d bytes; http on this machine %s\n", v.Policy.MaxDocumentBytes, map[bool]string{true: "allowed", false: "refused"}[v.Policy.AllowLoopbackHTTP])
	return t.Flush()
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orDash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}
