// Command argo-cd is two of Argo CD's programs, and its Lua for trying customizations out; its first argument says which.
package main

import (
	"fmt"
	"os"

	controller "github.com/argoproj/argo-cd/v3/cmd/argocd-application-controller/commands"
	reposerver "github.com/argoproj/argo-cd/v3/cmd/argocd-repo-server/commands"
	"github.com/spf13/cobra"
)

func main() {
	programs := map[string]func() *cobra.Command{
		"application-controller": controller.NewCommand,
		"repo-server":            reposerver.NewCommand,
		"lua":                    newLua,
	}
	if len(os.Args) < 2 || programs[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: argo-cd application-controller|repo-server|lua [FLAGS]")
		os.Exit(2)
	}
	program := programs[os.Args[1]]()
	os.Args = os.Args[1:]
	if program.Execute() != nil {
		os.Exit(1)
	}
}
