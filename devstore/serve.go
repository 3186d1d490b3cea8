package devstore

import (
	"context"
	"fmt"
	"io"
	"os"
)

// Exports are the lines that point every AWS SDK and the AWS CLI at the store:
// for a shell, one `export` each. The credentials are dummies; the store looks at none,
// but an SDK sends nothing without them.
func (s *Store) Exports() []string {
	return []string{
		"export AWS_ENDPOINT_URL_DYNAMODB=" + s.URL(),
		"export AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1", // boto3 knows the second alone
		"export AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local",
	}
}

// Serve is `solojob dev`: it runs a store until ctx is done, and prints at the start what
// to type into other terminals to use it.
func Serve(ctx context.Context, o Options, out io.Writer) error {
	s, err := Start(ctx, o)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Fprintf(out, "A DynamoDB endpoint in memory, with the table %q, at %s.\n", o.Table, s.URL())
	fmt.Fprintf(out, "It is for trying things out: what it holds is gone when it stops.\n\n")
	fmt.Fprintf(out, "In each of several other terminals:\n\n")
	for _, line := range s.Exports() {
		fmt.Fprintf(out, "    %s\n", line)
	}
	fmt.Fprintf(out, "    export SOLOJOB_TABLE=%s SOLOJOB_LEASE=hello\n", o.Table)
	fmt.Fprintf(out, "    %s run -- sh -c 'while :; do echo \"$FENCE: only me\"; sleep 1; done'\n\n", os.Args[0])
	fmt.Fprintf(out, "Exactly one of them runs the loop; stop it, and another takes over. Ctrl-C here ends the store.\n")
	<-ctx.Done()
	return nil
}
