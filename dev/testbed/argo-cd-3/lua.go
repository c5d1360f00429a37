package main

import (
	"encoding/json"
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// asked is what `argo-cd lua` reads: an object, and the customizations of its kind as in argocd-cm.
type asked struct {
	Object  unstructured.Unstructured `json:"object"`
	Health  string                    `json:"health"`
	Actions string                    `json:"actions"`
	// Action is run where there is one.
	Action string `json:"action"`
}

// answered is what it prints: the health, the actions that it would offer, and the object after the action.
type answered struct {
	Health  any                        `json:"health"`
	Actions []v1alpha1.ResourceAction  `json:"actions"`
	Object  *unstructured.Unstructured `json:"object,omitempty"`
}

// newLua does what the API server does of which a test has none: it offers actions and runs them.
func newLua() *cobra.Command {
	return &cobra.Command{Use: "lua", Args: cobra.NoArgs, SilenceUsage: true, RunE: func(*cobra.Command, []string) error {
		var in asked
		if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
			return err
		}
		out, err := answer(&in)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(out)
	}}
}

func answer(in *asked) (*answered, error) {
	key := lua.GetConfigMapKey(in.Object.GroupVersionKind())
	override := v1alpha1.ResourceOverride{HealthLua: in.Health, Actions: in.Actions}
	vm := lua.VM{ResourceOverrides: map[string]v1alpha1.ResourceOverride{key: override}}
	health, err := vm.ExecuteHealthLua(&in.Object, in.Health)
	if err != nil {
		return nil, err
	}
	scripts, err := vm.GetResourceActionDiscovery(&in.Object)
	if err != nil {
		return nil, err
	}
	actions, err := vm.ExecuteResourceActionDiscovery(&in.Object, scripts)
	if err != nil {
		return nil, err
	}
	out := &answered{Health: health, Actions: actions}
	if in.Action == "" {
		return out, nil
	}
	action, err := vm.GetResourceAction(&in.Object, in.Action)
	if err != nil {
		return nil, err
	}
	changed, err := vm.ExecuteResourceAction(&in.Object, action.ActionLua, nil)
	if err != nil {
		return nil, err
	}
	out.Object = changed[0].UnstructuredObj
	return out, nil
}
