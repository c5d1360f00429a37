// Command kstatus says what Flux and Helm 4 take objects for; it reads a JSON array of objects and prints one of answers.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

type answer struct {
	Status  string `json:"status"`
	Message string `json:"message"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var objects []any
	if err := utiljson.Unmarshal(text, &objects); err != nil { // int64 for whole numbers
		return err
	}
	answers := []answer{}
	for _, object := range objects {
		content, ok := object.(map[string]any)
		if !ok {
			return fmt.Errorf("%v is not an object", object)
		}
		found, err := status.Compute(&unstructured.Unstructured{Object: content})
		if err != nil {
			return err
		}
		answers = append(answers, answer{found.Status.String(), found.Message})
	}
	return json.NewEncoder(os.Stdout).Encode(answers)
}
