package quota_test

import (
	"context"
	"errors"
	"fmt"

	"millrace/quota"
)

func Example() {
	limiter := quota.New(quota.Static(100_000), &quota.Options{RPM: 600})

	call := func(ctx context.Context, tenant string, estimate int) error {
		reservation, err := limiter.Reserve(ctx, tenant, estimate)
		if err != nil {
			return err
		}
		defer reservation.Settle() // does nothing after Cancel

		// ... connect; a failure before the request is written is reservation.Cancel() ...
		reservation.Sent()
		// ... read the answer; a 429 is reservation.Cancel() and limiter.Pause(retryAfter) ...
		return nil
	}

	fmt.Println(call(context.Background(), "acme", 3_500))
	fmt.Println(limiter.Stats().Used)

	err := call(context.Background(), "acme", 200_000)
	var tooLarge *quota.TooLargeError
	fmt.Println(errors.As(err, &tooLarge), err)
	// Output:
	// <nil>
	// 3500
	// true request of 200000 tokens is larger than the cap of 100000
}
