package model_test

import (
	"fmt"

	"millrace/internal/model"
)

// A batch reads the same meanings from the lines of an output file as a worker from its calls.
func ExampleClassify() {
	for _, line := range []model.Response{
		{Status: 200, Body: []byte(`{"choices":[{"finish_reason":"stop","message":{"content":"Fine."}}]}`)},
		{Status: 400, Body: []byte(`{"error":{"code":"content_filter"}}`)},
		{Status: 429, Body: []byte(`{"error":{"code":"insufficient_quota"}}`)},
	} {
		answer, err := model.Classify(line)
		if err != nil {
			fmt.Println(err.Kind)
			continue
		}
		fmt.Printf("%s: %q\n", answer.Kind, answer.Text)
	}
	// Output:
	// answered: "Fine."
	// prompt_filtered: ""
	// quota_exhausted
}
