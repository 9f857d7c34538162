package main

import (
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"millrace/internal/catalog"
)

// completeNames lets a shell complete tenants and aliases from the catalog.
func completeNames(cmd *cobra.Command) {
	for flag, names := range map[string]func(*catalog.Catalog) []string{
		"tenant": func(c *catalog.Catalog) []string { return slices.Sorted(maps.Keys(c.Tenants)) },
		"model":  func(c *catalog.Catalog) []string { return slices.Sorted(maps.Keys(c.Aliases)) },
	} {
		if cmd.Flag(flag) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			c, err := catalog.Load(catalogPath(nil, os.LookupEnv))
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return names(c), cobra.ShellCompDirectiveNoFileComp
		})
	}
}
